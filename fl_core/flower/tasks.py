"""How a SuperNode's messages are taken from it, and answered by the run's app.

Nothing public serves: `flower-superexec` and `flwr-clientapp` are programs, which import all of
Flower and of the app anew for each message.
"""

import hashlib
import importlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flwr.cli.install import install_from_fab
from flwr.common.constant import APP_DIR, FAB_HASH_TRUNCATION
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
    address: str, token: str, authority: bytes | None, installed: Callable[[Path], object]
) -> None:
    """Answer a SuperNode's message as `flwr-clientapp` does, but sooner; the process ends with it.

    A SuperNode hands a message out before it has its parts: Flower then looks again after a second,
    this after a tenth. And Flower unpacks and checks all files of an app for each message, before
    it finds that they are there already (`install_once`). Neither has an option, so two names of
    Flower's module are replaced in this process.

    Parameters
    ----------
    address, token : str
        HOST:PORT of the SuperNode's API for its own machine, and which message.
    authority : bytes, optional
        The certificate by which the SuperNode is checked; without one, it speaks plain HTTP.
    installed : callable
        Is given the folder of the message's app before that is imported.
    """

    def install(fab: bytes, skip_prompt: bool = True) -> Path:
        installed(folder := install_once(fab, skip_prompt))
        return folder

    module = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    sooner = {
        "install_from_fab": install,
        "pull_and_inflate_object_from_tree": partial(
            pull_and_inflate_object_from_tree, initial_backoff=_LOOK_AGAIN
        ),
    }
    for name, replacement in sooner.items():
        if not hasattr(module, name):
            raise AttributeError(f"Flower's run_clientapp uses {name} no more")
        setattr(module, name, replacement)
    run_clientapp(
        runtime_api_address=address,
        token=token,
        insecure=authority is None,
        certificates=authority,
    )


def install_once(fab: bytes, skip_prompt: bool = True) -> Path:
    """Return the folder of an app that is installed, or install it: all of it, or nothing.

    Flower calls it by the hash of the app's bytes, and takes it as it is, too. It copies file by
    file: a disk that is full, or another SuperNode, would leave or find a part.
    """
    digest, apps = hashlib.sha256(fab).hexdigest()[:FAB_HASH_TRUNCATION], get_flwr_home() / APP_DIR
    for folder in apps.glob(f"*.{digest}"):
        return folder
    apps.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=apps.parent) as temporary:
        made = install_from_fab(fab, Path(temporary), skip_prompt=skip_prompt)
        installed = apps / made.name
        try:
            made.rename(installed)
        except OSError:
            if not installed.is_dir():  # otherwise another process was quicker
                raise
    return installed
