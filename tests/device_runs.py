"""Short runs of the app on devices with images of their own, in this process."""

import json
from contextlib import suppress

from flwr.app import Context, RecordDict

from fl_app.client_app import app
from fl_app.config.run_config import parse_config
from fl_app.devices.device_pool import DevicePool
from fl_app.run.experiment import run_experiment
from fl_core.messages.packing import unpack_content
from fl_core.user_code import is_import_path
from tests.app_runs import DEFAULTS, undrawn_pictures
from tests.local_grid import LocalGrid
from tests.toy_app import CorruptedApp

OPTIONS = {
    "dataset": "devices",
    "strategy": "rcc-pfl",
    "model": "mlp-32",
    "num-server-rounds": 3,
    "learning-rate": 0.003,
}


class Devices(LocalGrid):
    """Nodes that know their name, and their folder or function.

    `away` are not connected when the server looks: it looks 0 before the roll call, 1 in it,
    2 in round 1, and so on.
    """

    def __init__(
        self, folders, run_config, *, corrupt=None, away=None, model_paths=None, own_code=""
    ):
        super().__init__(SpoiledNodes(app, corrupt or {}), 0)
        self.names = sorted(folders)
        self.away = away or {}
        self.looks = -1
        for place, name in enumerate(self.names):
            node = self.node_of(place)
            data = str(folders[name])
            own = {"name": name, "data" if is_import_path(data) else "data-path": data}
            if own_code:
                own["own-code"] = own_code
            if model_paths and name in model_paths:
                own["model-path"] = str(model_paths[name])
            self.contexts[node] = Context(1, node, own, RecordDict(), dict(run_config))

    def get_node_ids(self):
        self.looks += 1
        return {
            node
            for node, name in zip(self.contexts, self.names, strict=True)
            if self.looks not in self.away.get(name, ())
        }

    def send_and_receive(self, messages, *, timeout=None):
        """Open answers, as the server's own grid does."""
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for reply in replies:
            if reply.has_content():
                with suppress(Exception):  # spoilt ones are as they are
                    reply.content = unpack_content(reply.content)
        return replies

    def asked(self, name):
        node = self.node_of(self.names.index(name))
        return [m.metadata.message_type for m in self.sent if m.metadata.dst_node_id == node]


class SpoiledNodes(CorruptedApp):
    def __call__(self, message, context):
        answer = self.inner(message, context)
        key = (message.metadata.message_type, context.node_config["name"])
        if key not in self.corrupt:
            return answer
        answer.content = unpack_content(answer.content)
        return self.corrupt[key](message, context, answer)


def run_on_devices(run_config, grid):
    return run_experiment(parse_config(run_config), grid, DevicePool)


def run(folder, folders, *, grid=None, **options):
    keys = {key.replace("_", "-"): value for key, value in options.items()}
    on_nodes = {k: keys.pop(k.replace("_", "-")) for k in ("corrupt", "away") if k in keys}
    if "own-code" in keys:
        on_nodes["own_code"] = keys.pop("own-code")
    if "model-paths" in keys:
        on_nodes["model_paths"] = keys.pop("model-paths")
    run_config = {**DEFAULTS, **OPTIONS, "output-dir": str(folder), **keys}
    if run_config["resume"]:
        run_config["output-dir"] = ""
    grid = Devices(folders, run_config, **on_nodes)
    with undrawn_pictures():
        run_on_devices(run_config, grid)
    return json.loads((folder / "summary.json").read_text(encoding="utf-8")), grid


def groups(one):
    """Return the names of each cluster's devices."""
    found = {}
    for name, cluster in zip(one["names"], one["clusters"], strict=True):
        found.setdefault(cluster, []).append(name)
    return sorted(members for cluster, members in found.items() if cluster >= 0)
