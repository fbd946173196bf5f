"""What a client stores from round to round: in its context, and on a device's disk.

It never leaves the client. By an identity in each message, it belongs to one training.
"""

import re
import shutil
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fl_core.files import replacing
from fl_core.messages import protocol

_ARRAYS, _ABOUT = "personal", "personal-about"
_ROUND = "round"
_LATEST = "latest"
_FORMAT = "fedkin personal state 1"
_IDENTITY = re.compile(r"[0-9a-f]{1,64}")
# Each is a training, and holds up to three models. A run has as many as strategies and seeds.
_MOST_TRAININGS = 8


class Personal:
    """A client's store for a message's training: in its context, and in a device's `folder`."""

    def __init__(self, message: Message, context: Context, folder: Path | None = None) -> None:
        config = message.content.config_records.get(protocol.CONFIG, ConfigRecord())
        self.identity = str(config.get(protocol.TRAINING, ""))
        self.round = int(str(config.get(protocol.SERVER_ROUND, 0)))
        # Before it trains in a round, a client has what it had after an earlier one: a run that is
        # resumed may go back behind what it stored last.
        is_training = message.metadata.message_type == protocol.TRAIN
        self._newest = self.round - 1 if is_training else self.round
        self._state = context.state
        self._folder = None
        if folder is not None and _IDENTITY.fullmatch(self.identity):
            self._folder = folder / self.identity

    def forget_others(self) -> None:
        """Drop what belongs to another training."""
        about = self._state.config_records.get(_ABOUT, ConfigRecord())
        if not self.identity or about.get(protocol.TRAINING) != self.identity:
            self._state.pop(_ARRAYS, None)
            self._state.pop(_ABOUT, None)

    def load(self) -> ArrayRecord | None:
        """Return the arrays that are stored for this training; None if there are none yet."""
        self.forget_others()
        about = self._state.config_records.get(_ABOUT)
        if about is not None and int(str(about[_ROUND])) <= self._newest:
            return self._state.array_records[_ARRAYS]
        return self._from_disk()

    @property
    def round_of_state(self) -> int:
        """Return after which round the context's arrays were saved; -1: none."""
        about = self._state.config_records.get(_ABOUT, ConfigRecord())
        return int(str(about.get(_ROUND, -1)))

    def save(self, arrays: ArrayRecord, *, server_round: int | None = None) -> None:
        """Store arrays in the place of those before, as of this message's round or another one."""
        if not self.identity:
            raise ValueError("this message belongs to no training with a personal state.")
        number = self.round if server_round is None else server_round
        self._state[_ARRAYS] = arrays
        self._state[_ABOUT] = ConfigRecord({protocol.TRAINING: self.identity, _ROUND: number})
        if self._folder is not None:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            _forget_oldest(self._folder)
            self._folder.mkdir(exist_ok=True, mode=0o700)
            with replacing(self._folder / f"{_LATEST}.safetensors") as temporary:
                said = {_FORMAT: str(number)}
                save_file(protocol.to_arrays(arrays), temporary, metadata=said)

    def save_for_checkpoint(self) -> None:
        """Store what is on disk for a run that resumes after this round, beside the last such."""
        if self._folder is None or self.load() is None:
            return
        latest = self._folder / f"{_LATEST}.safetensors"
        if latest.exists() and _opened(latest)[0] <= self.round:
            with replacing(self._folder / f"round-{self.round:09}.safetensors") as temporary:
                shutil.copyfile(latest, temporary)
        for path in sorted(self._folder.glob("round-*.safetensors"))[:-2]:
            path.unlink()

    def _from_disk(self) -> ArrayRecord | None:
        if self._folder is None or not self._folder.is_dir():
            return None
        paths = self._folder.glob("[!.]*.safetensors")
        rounds = {path: _opened(path)[0] for path in paths}
        fit = [path for path, number in rounds.items() if number <= self._newest]
        if not fit:
            return None
        newest = max(fit, key=lambda path: (rounds[path], path.name))
        return _opened(newest, arrays=True)[1]


def _opened(path: Path, *, arrays: bool = False) -> tuple[int, ArrayRecord]:
    try:
        with safe_open(path, framework="numpy") as file:
            number = (file.metadata() or {})[_FORMAT]
            names = list(file.keys()) if arrays else []
            return int(number), protocol.to_record({n: file.get_tensor(n) for n in names})
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(
            f"{path} is not a personal state of this app ({error}): remove it, and this client "
            "starts again from the shared model."
        ) from error


def _forget_oldest(folder: Path) -> None:
    """Remove the stores of all but the newest trainings: runs may be resumed."""
    others = [one for one in folder.parent.iterdir() if one.is_dir() and one != folder]
    others.sort(key=lambda one: one.stat().st_mtime_ns)
    for old in others[: max(0, len(others) - _MOST_TRAININGS + 1)]:
        if _IDENTITY.fullmatch(old.name):
            shutil.rmtree(old)
