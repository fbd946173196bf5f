"""What malicious clients do to a run, and who sees them: measured on real images."""

import pytest

from tests.app_runs import ALL_STEPS, SGD, of_strategy, per_round, run
from tests.samples import sampled

OPTIONS = {"clients": 20, "num_tasks": 2, "num_server_rounds": 6, "malicious": 0.2}
OPTIONS |= ALL_STEPS | SGD


def attacked(folder, attack, **options):
    return run(folder, attack=attack, **{**OPTIONS, "num_clusters": "silhouette"} | options)


@pytest.fixture(scope="module")
def flipped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sign-flip")
    names = "fedhc,single,optimum"
    return folder, attacked(folder, "sign-flip", strategy=names)


@pytest.mark.faults
@pytest.mark.slow
def test_fedhc_isolates_clients_that_flip_the_sign_of_their_update(flipped):
    _, summary = flipped
    found, single, told = (of_strategy(summary, n) for n in ("fedhc", "single", "optimum"))
    assert len(found["malicious"]) == 4
    assert found["malicious-isolated"] == found["ari"] == 1
    assert single["malicious-isolated"] == told["malicious-isolated"] == 0
    assert found["accuracy"] > single["accuracy"] + 0.05
    assert found["accuracy"] > told["accuracy"]  # who is told the tasks averages the flipped ones


@pytest.mark.faults
@pytest.mark.slow
def test_what_malicious_clients_get_counts_for_nothing(flipped):
    folder, summary = flipped
    for one in summary["runs"]:
        tested = {c for c, a in enumerate(one["accuracy-per-client"]) if a is not None}
        honest = set(range(20)) - set(one["malicious"])
        assert tested == honest
        mean = sum(one["accuracy-per-client"][c] for c in honest) / len(honest)
        assert one["accuracy"] == pytest.approx(mean)
        assert per_round(folder, one["strategy"], "accuracy")[-1] == pytest.approx(mean)
    assert per_round(folder, "optimum", "ari") == [1] * 6


@pytest.mark.slow
@pytest.mark.faults
def test_fedhc_isolates_clients_that_flip_labels(tmp_path):
    summary = attacked(tmp_path, "label-flip", strategy="fedhc,single")
    found, single = summary["runs"]
    assert found["malicious-isolated"] == 1
    assert single["malicious-isolated"] == 0
    assert max(per_round(tmp_path, "fedhc", "accuracy")) > single["accuracy"] + 0.05


@pytest.mark.slow
@pytest.mark.faults
def test_directions_alone_do_not_show_that_an_update_was_blown_up(tmp_path):
    """So with the number of clusters given, attackers stay with the honest."""
    options = {"strategy": "fedhc", "num_clusters": "num-tasks"}
    (found,) = attacked(tmp_path, "scaled-update", **options)["runs"]
    assert found["ari"] == 1
    assert found["malicious-isolated"] == 0
    assert found["accuracy"] < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("number", sampled(["elbow", "num-tasks"], 2))
def test_random_eigenvectors_do_not_disturb_the_grouping_of_the_honest(tmp_path, number):
    """Whether the number of clusters is given or chosen, liars stay alone, and are named."""
    options = {"strategy": "rcc-pfl,optimum", "num_clusters": number, "num_server_rounds": 2}
    options["outliers"] = "separate"
    found, best = attacked(tmp_path, "random-signature", **options)["runs"]
    assert found["ari"] == 1
    assert found["malicious-isolated"] == 1
    assert [int(client) for client in found["outliers"]] == found["malicious"]
    assert found["accuracy"] > best["accuracy"] - 0.05


def test_random_eigenvectors_make_no_two_tasks_look_alike(tmp_path):
    """Missed energy is relative: beside what shares nothing, all others would seem to be one."""
    options = {"strategy": "fedkin", "relevance_at": "clients", "num_server_rounds": 1}
    options |= {"num_clusters": "auto", "minority": 0.2, "malicious": 0.1}
    (found,) = attacked(tmp_path, "random-signature", **options)["runs"]
    assert found["ari"] == 1
    assert [int(client) for client in found["outliers"]] == found["malicious"]


def test_random_eigenvectors_come_with_the_eigenvalues_that_the_server_needs(tmp_path):
    (found,) = attacked(
        tmp_path, "random-signature", strategy="fedkin", num_clusters="auto", num_server_rounds=1
    )["runs"]
    assert [int(client) for client in found["outliers"]] == found["malicious"] != []
    assert found["options"]["relevance-at"] == "server"
    assert not found["failures"]


def test_the_same_clients_are_malicious_whatever_they_do_and_none_without_an_attack(tmp_path):
    options = {"strategy": "own+mean", "num_server_rounds": 1}
    runs = {
        name: attacked(tmp_path / name, name, **options)["runs"][0]
        for name in ("none", "label-flip", "random-signature")
    }
    assert runs["label-flip"]["malicious"] == runs["random-signature"]["malicious"]
    assert not any(key.startswith("malicious") for key in runs["none"])
    assert None not in runs["none"]["accuracy-per-client"]
