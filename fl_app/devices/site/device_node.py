"""A real device as a client: its name, its data, its stored models, and its messages."""

from __future__ import annotations

import logging
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from clients.client import Images
from clients.handlers import tested_model
from clients.signatures.answers import refuse_without_noise
from clients.training.personal import Personal
from fl_app.config.allowed_code import ALLOWED_CODE, allowed_paths
from fl_app.devices.site.model_files import (
    beside,
    candidate_path,
    check_model_path,
    expand,
    remove_old_candidates,
)
from fl_app.run.node import Node, config_of
from fl_core.agreement.agreement import AGREEMENT, Agreement, Survey
from fl_core.agreement.local_data import (
    DATA,
    read_local_images,
    read_local_samples,
    read_local_table,
    refuse_texts,
    survey_images,
    survey_samples,
    survey_table,
)
from fl_core.data.folders import cache_dir, is_table
from fl_core.data.samples import Split, sample_word
from fl_core.data.scaling import ColumnStatistics, Scaling, standardise_site, unscaled_split
from fl_core.data.settings import AUTO_TARGET, REAL_DEVICES, SITE, TARGET
from fl_core.extras import need_extra
from fl_core.files import replacing
from fl_core.flower.basics import SUPERLINK_NODE_ID
from fl_core.messages import protocol
from fl_core.messages.packing import Packer, unpack_content
from fl_core.models.model_file import ModelCard, save_model
from fl_core.partitions.validation import STREAM, ValidationSplit, split_validation
from fl_core.text import ALLOWED_NAME, name_if_readable, printable
from fl_core.user_code import IMPORT_PATH_OR_EMPTY

logger = logging.getLogger(__name__)

_WARNED_KEY = "warnings-of-data"  # in the node's state, which lasts for a run

_KEYS = ("name", "data-path", DATA, "model-path", ALLOWED_CODE, "label", "target")


class NodeConfig(NamedTuple):
    """The `--node-config` of a device's SuperNode."""

    name: str
    path: Path | None  # of its images, or its table
    data: str  # instead, the import path of a function that returns its samples
    model_path: Path | None  # where it stores its final model
    own_code: tuple[str, ...] = ()  # import paths of user-defined code that may run on it
    label: str = ""  # the column of a table; by default, the run's
    target: str = AUTO_TARGET  # "auto" or "number"; by default, the run's

    @classmethod
    def of(cls, config: Mapping[str, object]) -> NodeConfig:
        """Read a node's configuration; unknown keys may belong to other apps."""
        for key in config:
            if key not in _KEYS and (meant := get_close_matches(key, _KEYS, 1, 0.8)):
                raise ValueError(f"--node-config has no {printable(key)}. Did you mean {meant[0]}?")
        # Flower reads `name=0` and `label=0` as numbers.
        name, data, label = (str(config.get(key, "")) for key in ("name", DATA, "label"))
        if not name or bool(data) == bool(config.get("data-path")):
            raise ValueError(
                f"a device needs a name, and either data-path or {DATA}: start its SuperNode with "
                '--node-config \'name="berlin" data-path="/srv/scans"\'.'
            )
        if name_if_readable(name) is None:
            raise ValueError(
                f'name is "{printable(name)[:120]}", but it must have {ALLOWED_NAME}: change it in '
                "--node-config."
            )
        IMPORT_PATH_OR_EMPTY.read(DATA, data)
        paths = {
            key: expand(str(config[key])) for key in ("data-path", "model-path") if config.get(key)
        }
        for key, one in paths.items():
            if not one.is_absolute():
                raise ValueError(
                    f"{key} is {one}, but it must be absolute, such as {Path('/srv', one)}: change "
                    "it in its --node-config."
                )
        path, model_path = paths.get("data-path"), paths.get("model-path")
        target = TARGET.read("target", config.get("target", AUTO_TARGET))
        return cls(name, path, data, model_path, allowed_paths(config), label, target)

    def survey(self) -> Survey:
        """Describe the device's data before there is an agreement."""
        if self.path is None:
            return survey_samples(self.data)
        if is_table(self.path):
            return survey_table(self.path, self.label, self.target)
        return survey_images(self.path)

    def read(self, agreement: Agreement) -> Split:
        """Read the device's data by the agreement."""
        if self.path is None:
            return read_local_samples(self.data, agreement)
        if is_table(self.path):
            return read_local_table(self.path, self.label, agreement, self.target)
        return read_local_images(self.path, cache_dir(), agreement)


class DeviceNode(Node):
    """A real device, which its SuperNode's `--node-config` describes."""

    def __init__(self, message: Message, context: Context) -> None:
        super().__init__(message, context)
        given = NodeConfig.of(context.node_config)
        self.node_config = given._replace(
            label=given.label or self.config.label,
            target=self.config.target if given.target == AUTO_TARGET else given.target,
        )
        self.name, self.model_path = self.node_config.name, self.node_config.model_path
        self._message_config = message.content.config_records[protocol.CONFIG]

    @property
    def index(self) -> int:
        """Return a number for its name, which seeds its random numbers."""
        return zlib.crc32(self.name.encode())

    @cached_property
    def kind(self) -> Agreement:
        """Return the devices' agreement about their data."""
        return Agreement.from_config(self._message_config)

    @cached_property
    def _read(self) -> tuple[Split, Scaling | None]:
        """The scaled data, and their scale."""
        read, common = self.node_config.read(self.kind), self.kind.scaling
        self._warn_once(read.notes)
        if common is not None:
            return common.transform_split(read, self.kind.column_names), common
        if self.config.standardise != SITE:
            return unscaled_split(read, self.kind.column_names), None
        training = self._split(read).train
        alone, scaling, notes = standardise_site(read, training, self.kind.column_names)
        self._warn_once(notes)
        return alone, scaling

    def _warn_once(self, notes: Sequence[str]) -> None:
        """Log notes on the data once in a run: each message reads the data again."""
        known = self.context.state.config_records.setdefault(_WARNED_KEY, ConfigRecord())
        for note in notes:
            if note not in known:
                logger.warning("%s: %s", self.name, note)
                known[note] = True

    def scaling(self) -> Scaling | None:
        """Return the scale of the data, if they were standardised."""
        return self._read[1]

    def column_statistics(self) -> ColumnStatistics:
        """Return the statistics of its training samples without any scaling."""
        refuse_without_noise(self, "means and deviations")
        read = self.node_config.read(self.kind)
        training = self._split(read).train
        return ColumnStatistics.of(read.train_samples[training], read.train_labels[training])

    @cached_property
    def _parts(self) -> ValidationSplit:
        return self._split(self._read[0])

    def _split(self, read: Split) -> ValidationSplit:
        """Split the samples that are not for testing into training and validation."""
        rng = None if read.is_in_time else np.random.default_rng([self.index, STREAM])
        return split_validation(read.train_labels.numpy(), self.config.validation_share, rng)

    def training_data(self) -> Images:
        """Return the samples for training."""
        return self._selected(self._parts.train)

    def validation_data(self) -> Images | None:
        """Return the samples on which it compares models, or None."""
        return self._selected(self._parts.validation) if self.config.validation_share else None

    def _selected(self, mask: NDArray[np.bool_]) -> Images:
        samples, labels = self._read[0].train_samples, self._read[0].train_labels
        if not mask.all():
            samples, labels = samples[torch.from_numpy(mask)], labels[torch.from_numpy(mask)]
        return samples.to(self.device), labels.to(self.device)

    def test_data(self) -> Images:
        """Return the samples for testing."""
        found = self._read[0]
        if not len(found.test_labels):
            raise ValueError(
                f"{self.name} has no test {sample_word(self.kind)}s: add some, of images by a "
                "folder test or a second image of a class."
            )
        return found.test_samples.to(self.device), found.test_labels.to(self.device)

    def features(self) -> NDArray[np.float32]:
        """Return the configured features, and warn in this device's log if they say little."""
        found = super().features()
        if why := self.why_uninformative(found):
            logger.warning("%s: %s", self.name, why)
        return found

    def description(self) -> dict[str, ConfigRecordValues]:
        """Describe the device: its name and, before there is an agreement, its data."""
        try:
            if self.model_path is not None:
                check_model_path(self.model_path)
            if self.config.training_epsilon:
                need_extra("opacus", "training-epsilon")
            description: dict[str, ConfigRecordValues] = {protocol.NAME: self.name}
            if AGREEMENT not in self._message_config:
                found = self.node_config.survey()
                if epsilon := self.config.pre_round_epsilon or self.config.training_epsilon:
                    refuse_texts(found.columns, epsilon)
                description |= found.as_config()
        except (ValueError, OSError, ImportError) as error:  # the server knows no name yet
            raise ValueError(f"{self.name}: {error}") from error
        return description

    def personal(self) -> Personal:
        """Return its private store, also on its disk if it has a `model-path`."""
        folder = self.model_path and beside(self.model_path, "-personal")
        return Personal(self.message, self.context, folder)

    def save_state(self) -> RecordDict:
        """Save its private state on its disk, and return an empty record."""
        self.personal().save_for_checkpoint()
        return RecordDict()

    def restore_state(self) -> RecordDict:
        """Refuse a private state from the server."""
        raise ValueError("a device reads its private state from its disk only.")

    def save_model(self) -> bool:
        """Save its final, personal model at `model-path`, or as a candidate for `deploy_model`."""
        if self.model_path is None:
            return False
        path = self.model_path
        if protocol.CANDIDATE in self._message_config:
            folder = self._candidates(path)
            remove_old_candidates(path, folder)
            folder.mkdir(mode=0o700, exist_ok=True)
            path = candidate_path(folder, str(self._message_config[protocol.CANDIDATE]))
        card = ModelCard(
            architecture=self.config.model,
            sample_shape=self.kind.sample_shape,
            class_names=self.kind.class_names,
            strategy=str(self._message_config[protocol.STRATEGY]),
            cluster=protocol.setting(self.message, protocol.CLUSTER),
            num_rounds=protocol.setting(self.message, protocol.SERVER_ROUND),
            preparation=replace(
                self.kind.preparation,
                label=self.node_config.label,
                standardise=self.config.standardise,
                scaling=self.scaling(),
            ),
        )
        arrays = ArrayRecord(tested_model(self).state_dict())
        save_model(path, protocol.to_arrays(arrays), card, private=True)
        return True

    def deploy_model(self) -> bool:
        """Move the model of its verdict to `model-path`, write the verdict, remove the others."""
        if self.model_path is None:
            return False
        label = str(self._message_config[protocol.CANDIDATE])
        chosen = candidate_path(self._candidates(self.model_path), label)
        if not chosen.is_file():
            raise ValueError(
                f"{self.name} has no model of {label}: it was not sent one, or lost it."
            )
        with replacing(beside(self.model_path, ".verdict.json"), private=True) as verdict:
            verdict.write_text(str(self._message_config[protocol.VERDICT]) + "\n", encoding="utf-8")
            chosen.replace(self.model_path)
        shutil.rmtree(chosen.parent)
        return True

    def _candidates(self, model_path: Path) -> Path:
        """Return the folder of this run's candidates."""
        return beside(model_path, f"-candidates-{self.context.run_id}")


def device_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Refuse messages that are not from the SuperLink, and pack answers: Flower's mod of devices.

    Packing makes the bytes of an answer unpredictable (`fl_core.messages.packing`).
    """
    if config_of(context).dataset != REAL_DEVICES:  # a simulated client
        return call_next(message, context)
    # No proof: a node that reaches the SuperLink without the gate can forge these fields.
    about = message.metadata
    claimed = (about.src_node_id, about.dst_node_id, about.run_id)
    if claimed != (SUPERLINK_NODE_ID, context.node_id, context.run_id):
        raise ValueError(
            f"node {context.node_id} in run {context.run_id} accepts messages from the SuperLink "
            f"alone, not from node {claimed[0]} to node {claimed[1]} in run {claimed[2]}."
        )
    if message.has_content():
        message.content = unpack_content(message.content)
    answer = call_next(message, context)
    if answer.has_content():
        answer.content = Packer().pack(answer.content)
    return answer
