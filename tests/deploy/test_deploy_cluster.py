"""The files of deploy/cluster: what shells, Ray and fedkin can read of them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fl_app.cli import _parser

CLUSTER = Path(__file__).parents[2] / "deploy" / "cluster"


def text(name: str) -> str:
    return (CLUSTER / name).read_text(encoding="utf-8")


def test_bash_can_read_the_slurm_script():
    subprocess.run(["bash", "-n", CLUSTER / "slurm.sh"], check=True)  # noqa: S607


@pytest.mark.slow
@pytest.mark.faults
def test_ray_s_launcher_accepts_its_file():
    code = (
        "import sys, yaml\n"
        "from ray.autoscaler._private.util import prepare_config, validate_config\n"
        "validate_config(prepare_config(yaml.safe_load(open(sys.argv[1]))))\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", code, str(CLUSTER / "ray-up.yaml")]
    subprocess.run(words, check=True)
    broken = subprocess.run(
        [*words[:-1], str(CLUSTER / "kuberay.yaml")], check=False, capture_output=True
    )
    assert broken.returncode  # it does look


def test_the_job_of_kubernetes_is_complete():
    job = yaml.safe_load(text("kuberay.yaml"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in (head, workers):
        spec = group["template"]["spec"]
        (container,) = spec["containers"]
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in spec["volumes"]}
        paths = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {one["value"] for one in container["env"]} <= paths


def commands() -> list[str]:
    """Return every `fedkin run …` of the folder and of docs/cluster.md and docs/gpu.md."""
    job = yaml.safe_load(text("kuberay.yaml"))["spec"]["entrypoint"]
    slurm = re.search(r"^fedkin run .*$", text("slurm.sh"), re.MULTILINE)
    ray = re.search(r"fedkin (run [^']*)'", text("ray-up.yaml"))
    assert slurm
    assert ray
    docs = CLUSTER.parents[1] / "docs"
    found = re.findall(r"^fedkin run .*$", (docs / "cluster.md").read_text(), re.MULTILINE)
    found += re.findall(r"`(fedkin run [^`…]*)…?`", (docs / "gpu.md").read_text())
    assert len(found) >= 4
    return [job, slurm[0].replace('"$@"', "strategy=all"), f"fedkin {ray[1]}", *found]


@pytest.mark.parametrize("command", commands())
def test_fedkin_knows_the_words(command):
    program, *words = shlex.split(command)
    assert program == "fedkin"
    options, rest = _parser().parse_known_args(words)
    assert options.overrides or rest or "--" in command or command.strip() == "fedkin run"
    assert not [word for word in rest if word.startswith("-")]
    assert all("=" in word for word in [*options.overrides, *rest])


def test_the_images_have_all_packages():
    for name in ("fl_core", "clients", "strategies", "fl_app"):
        assert f"COPY {name} {name}\n" in text("Dockerfile")
