"""Take a message of a SuperNode and answer it by the run's app.

`flower-superexec` and `flwr-clientapp` are programs, which import all of Flower and of the app
again for each message.
"""

import hashlib
import importlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flwr.cli.install import install_from_fab
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.common.constant import APP_DIR
from flwr.common.logger import update_console_handler
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.address import resolve_bind_address
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.utils import get_flwr_home
from flwr.supernode.runtime.run_clientapp import run_clientapp

_LOOK_AGAIN = 0.1  # seconds


def answer_task(
    address: str,
    token: str,
    authority: bytes | None,
    check: Callable[[str], object],
    use: Callable[[Path], object],
) -> None:
    """Answer a SuperNode's message as `flwr-clientapp` does, but faster; then end the process.

    A SuperNode offers a message before it has all objects: Flower tries again after 1 s, this
    function after 0.1 s. And Flower unpacks and checks all files of an app for each message, before
    it finds that the app is installed (`install_once`). Neither has an option, so this function
    replaces three names of Flower's module in this process.

    `address` is HOST:PORT of the SuperNode's API, `token` the message, and `authority` the
    certificate that authenticates the SuperNode, or None for plain HTTP. `check` is called with the
    SHA-256 hash of the app's FAB before it is unpacked, `use` with its folder before its import.
    """
    folder = Path()

    def install(fab: bytes, skip_prompt: bool = True) -> Path:
        nonlocal folder
        check(hashlib.sha256(fab).hexdigest())
        use(folder := install_once(fab, skip_prompt))
        return folder

    module = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    sooner = {
        "install_from_fab": install,
        "get_load_client_app_fn": lambda **words: get_load_client_app_fn(
            **{**words, "app_path": str(folder)}
        ),
        "pull_and_inflate_object_from_tree": partial(
            pull_and_inflate_object_from_tree, initial_backoff=_LOOK_AGAIN
        ),
    }
    for name, replacement in sooner.items():
        if not hasattr(module, name):
            raise AttributeError(f"Flower's run_clientapp has no {name} any more")
        setattr(module, name, replacement)
    run_clientapp(
        runtime_api_address=address,
        token=token,
        insecure=authority is None,
        certificates=authority,
    )


def install_once(fab: bytes, skip_prompt: bool = True) -> Path:
    """Return the folder of an installed app, or install it completely or not at all.

    Its name has the whole hash of the app's bytes, of which Flower's has 32 bits. Flower copies
    file by file: a full disk or another SuperNode would leave or find a part.
    """
    digest, apps = hashlib.sha256(fab).hexdigest(), get_flwr_home() / APP_DIR
    for folder in apps.glob(f"*.{digest}"):
        return folder
    apps.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=apps.parent) as temporary:
        made = install_from_fab(fab, Path(temporary), skip_prompt=skip_prompt)
        installed = apps / f"{made.stem}.{digest}"
        try:
            made.rename(installed)
        except OSError:
            if not installed.is_dir():  # otherwise another process was quicker
                raise
    return installed
