"""Whose data a node has: a simulated client's or, on a device, those in its own folder."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import threadpoolctl
import torch
from flwr.app import ConfigRecordValues, Context, Message

from clients.attacks import flip_labels
from clients.handlers import partition_id
from fl_app.config import OWN_IMAGES, Config, parse_config
from fl_core import protocol
from fl_core.datasets import cache_dir
from fl_core.federation import Federation, simulate_federation
from fl_core.own_images import (
    CLASS_NAMES,
    Agreement,
    OwnImages,
    read_own_images,
    survey_images,
)

Images = tuple[torch.Tensor, torch.Tensor]
"""uint8, shape (n, C, H, W), and labels, int64, shape (n,)."""

_START = 'start its SuperNode with --node-config \'name="berlin" data-path="/srv/scans"\'.'


@dataclass(frozen=True)
class SimulatedNode:
    """A client of a simulation.

    Attributes
    ----------
    config : Config
        The run's.
    federation : Federation
        All clients' data.
    index : int
        Which of them it is.
    server_round : int
        The message's round.
    """

    config: Config
    federation: Federation
    index: int
    server_round: int

    @property
    def is_malicious(self) -> bool:
        """Return whether it attacks."""
        return self.index in self.federation.malicious

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return channels, height and width of an image."""
        return self.federation.dataset.image_shape

    @property
    def num_classes(self) -> int:
        """Return the number of classes of all clients together."""
        return self.federation.dataset.num_classes

    def training_data(self) -> Images:
        """Return what it holds in this round; one that flips its labels sees them flipped."""
        images, labels = self.federation.training_data(self.index, self.server_round)
        if self.config.attack == "label-flip" and self.is_malicious:
            labels = flip_labels(labels, self.num_classes)
        return images, labels

    def test_data(self) -> Images:
        """Return the test images of its task in this round, with clean labels."""
        return self.federation.test_data(self.index, self.server_round)


@dataclass(frozen=True)
class DeviceNode:
    """A real device.

    Attributes
    ----------
    config : Config
        The run's.
    name : str
        By which the server and people know it.
    path : Path
        Its own images.
    model_path : Path, optional
        Where it keeps its final model.
    told : mapping
        The message's config record.
    """

    config: Config
    name: str
    path: Path
    model_path: Path | None
    told: Mapping[str, ConfigRecordValues]

    @property
    def index(self) -> int:
        """Return a number for its name, from which its random numbers are drawn."""
        return zlib.crc32(self.name.encode())

    @property
    def is_malicious(self) -> bool:
        """Return False: attacks are simulated."""
        return False

    @cached_property
    def agreement(self) -> Agreement:
        """Return what the devices have agreed about their images."""
        return Agreement.from_config(self.told)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return channels, height and width of an image."""
        return self.agreement.image_shape

    @property
    def num_classes(self) -> int:
        """Return the number of classes of all devices together."""
        return self.agreement.num_classes

    def training_data(self) -> Images:
        """Return its images but those held out, labels as they are."""
        return self._images.train_images, self._images.train_labels

    def test_data(self) -> Images:
        """Return its test images.

        Raises
        ------
        ValueError
            If it has none.
        """
        images = self._images
        if not len(images.test_labels):
            raise ValueError(
                f"{self.name} has no test images: give it a folder test, or two images of a class."
            )
        return images.test_images, images.test_labels

    @cached_property
    def _images(self) -> OwnImages:
        return read_own_images(self.path, cache_dir(), self.agreement)

    def description(self) -> dict[str, ConfigRecordValues]:
        """Return what it says of itself: its name and, before there is an agreement, its images.

        Raises
        ------
        ValueError
            With its name, if there are no images, or not such as can be used; or if it could not
            keep its model, which is better known before the training than after it.
        """
        try:
            self._check_model_path()
            said: dict[str, ConfigRecordValues] = {protocol.NAME: self.name}
            if CLASS_NAMES not in self.told:
                said |= survey_images(self.path).as_config()
        except (ValueError, OSError) as error:  # the server does not know the name yet
            raise ValueError(f"{self.name}: {error}") from error
        return said

    def _check_model_path(self) -> None:
        path = self.model_path
        if path is None:
            return
        if path.is_dir():
            raise ValueError(
                f"model-path is {path}, which is a folder: name a file in it, such as "
                f"{path / 'model.safetensors'}."
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            may_write = os.access(path.parent, os.W_OK)
        except OSError:
            may_write = False
        if not may_write:
            raise ValueError(
                f"model-path is {path}, but this SuperNode may not write there: make the folder "
                "and give it the right to, or name another one."
            )


def open_node(message: Message, context: Context) -> SimulatedNode | DeviceNode:
    """Return the node that answers a message.

    Raises
    ------
    ValueError, OSError
        If the configuration is wrong, the node's own lacks what it needs, its index is not one of
        the clients', or a simulation's data cannot be had.
    """
    config = parse_config(context.run_config)
    if config.dataset == OWN_IMAGES:
        return _open_device(config, message, context)
    if context.node_config.get("data-path"):
        raise ValueError(
            f'this device has images of its own, but dataset is "{config.dataset}", which is for '
            "simulations: start the run with --run-config pyproject-flwr.toml."
        )
    _one_thread()
    settings = config.federation_settings(
        protocol.setting(message, protocol.NUM_CLIENTS), protocol.setting(message, protocol.SEED)
    )
    index = partition_id(message, context)
    if not 0 <= index < settings.num_clients:
        raise ValueError(
            f"this node's partition-id is {index}, but there are {settings.num_clients} clients: "
            f"start SuperNodes with partition-id 0 to {settings.num_clients - 1}."
        )
    server_round = protocol.setting(message, protocol.SERVER_ROUND, 0)
    return SimulatedNode(config, simulate_federation(settings), index, server_round)


def _open_device(config: Config, message: Message, context: Context) -> DeviceNode:
    own = context.node_config
    for key in ("name", "data-path"):
        if not own.get(key):
            raise ValueError(f'dataset is "{OWN_IMAGES}", but this node has no {key}: {_START}')
    paths = {
        key: Path(str(own[key])).expanduser() for key in ("data-path", "model-path") if own.get(key)
    }
    for key, path in paths.items():
        if not path.is_absolute():
            raise ValueError(f"{key} is {path}, but it must be absolute: {_START}")
    told = message.content.config_records[protocol.CONFIG]
    return DeviceNode(config, str(own["name"]), paths["data-path"], paths.get("model-path"), told)


def _one_thread() -> None:
    """Give each simulated client one thread, whatever Ray grants: they share a machine.

    Sums are then added up in the same order on any number of workers. Asked for every time, since
    libraries that are loaded later (numba) raise the number again. A device is its own master.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    _limit_threads_of_libraries()


@lru_cache(maxsize=1)
def _limit_threads_of_libraries() -> None:
    threadpoolctl.threadpool_limits(1)
