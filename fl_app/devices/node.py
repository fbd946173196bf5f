"""A real device as a client: its own name, its own folder of images, its own copy of the model."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from flwr.app import ConfigRecordValues, Context, Message

from clients.client import Images
from fl_app.config import OWN_IMAGES
from fl_app.node import Node
from fl_core import protocol
from fl_core.extras import need_extra
from fl_core.folders import cache_dir
from fl_core.image_folder import LabelledImages
from fl_core.model_file import ModelCard, save_model
from fl_core.own_images import CLASS_NAMES, Agreement, read_own_images, survey_images

_START = 'start its SuperNode with --node-config \'name="berlin" data-path="/srv/scans"\'.'


class NodeConfig(NamedTuple):
    """What a SuperNode's `--node-config` says of a device.

    Attributes
    ----------
    name : str
        By which the server and people know it.
    path : Path
        Its own images.
    model_path : Path, optional
        Where it keeps its final model.
    """

    name: str
    path: Path
    model_path: Path | None

    @classmethod
    def of(cls, own: Mapping[str, object]) -> NodeConfig:
        """Read what Flower has made of it.

        Raises
        ------
        ValueError
            If the name or the images are missing, or a path is not absolute.
        """
        for key in ("name", "data-path"):
            if not own.get(key):
                raise ValueError(f'dataset is "{OWN_IMAGES}", but this node has no {key}: {_START}')
        paths = {
            key: Path(str(own[key])).expanduser()
            for key in ("data-path", "model-path")
            if own.get(key)
        }
        for key, path in paths.items():
            if not path.is_absolute():
                raise ValueError(f"{key} is {path}, but it must be absolute: {_START}")
        return cls(str(own["name"]), paths["data-path"], paths.get("model-path"))


class DeviceNode(Node):
    """A real device, which its SuperNode's `--node-config` describes.

    Attributes
    ----------
    name, path, model_path
        As in `NodeConfig`.

    Raises
    ------
    ValueError
        If the configuration is wrong, or the node's own lacks what it needs.
    """

    def __init__(self, message: Message, context: Context) -> None:
        super().__init__(message, context)
        self.name, self.path, self.model_path = NodeConfig.of(context.node_config)
        self._told = message.content.config_records[protocol.CONFIG]

    @property
    def index(self) -> int:
        """Return a number for its name, from which its random numbers are drawn."""
        return zlib.crc32(self.name.encode())

    @cached_property
    def kind(self) -> Agreement:
        """Return what the devices have agreed about their images."""
        return Agreement.from_config(self._told)

    @cached_property
    def _images(self) -> LabelledImages:
        return read_own_images(self.path, cache_dir(), self.kind)

    def training_data(self) -> Images:
        """Return its images but those held out, labels as they are."""
        images = self._images
        return images.train_images.to(self.device), images.train_labels.to(self.device)

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
        return images.test_images.to(self.device), images.test_labels.to(self.device)

    def description(self) -> dict[str, ConfigRecordValues]:
        """Return what it says of itself: its name and, before there is an agreement, its images.

        Raises
        ------
        ValueError
            With its name, if there are no images, or not such as can be used; or if it could not
            keep its model or train privately, which is better known before the training.
        """
        try:
            if self.model_path is not None:
                check_model_path(self.model_path)
            if self.config.training_epsilon:
                need_extra("opacus", "training-epsilon")
            said: dict[str, ConfigRecordValues] = {protocol.NAME: self.name}
            if CLASS_NAMES not in self._told:
                said |= survey_images(self.path).as_config()
        except (ValueError, OSError, ImportError) as error:  # the server knows no name yet
            raise ValueError(f"{self.name}: {error}") from error
        return said

    def keep_model(self) -> bool:
        """Save the final model where `model-path` says, if it says so."""
        if self.model_path is None:
            return False
        card = ModelCard(
            architecture=self.config.model,
            image_shape=self.kind.image_shape,
            class_names=self.kind.class_names,
            strategy=str(self._told[protocol.STRATEGY]),
            cluster=protocol.setting(self.message, protocol.CLUSTER),
            num_rounds=protocol.setting(self.message, protocol.SERVER_ROUND),
        )
        arrays = self.message.content.array_records[protocol.ARRAYS]
        save_model(self.model_path, protocol.to_arrays(arrays), card)
        return True


def check_model_path(path: Path) -> None:
    """Refuse a `model-path` at which no model could be kept; its folder is made.

    Raises
    ------
    ValueError
        If it is a folder, or this account may not write there.
    """
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
