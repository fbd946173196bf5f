"""A trained model as one safetensors file, with a card that describes it."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import nn

from fl_core.data.dataset import described_tensor
from fl_core.data.preparation import NO_PREPARATION, Preparation
from fl_core.data.settings import MODELS
from fl_core.files import replacing
from fl_core.json_records import STRICT, from_json, to_json
from fl_core.models.build import ImageShape, unfilled_model
from fl_core.user_code import is_import_path

CHANNELS = (1, 3)
MAX_SIDE = 1024  # pixels
MAX_CLASSES = 10_000
_MAX_AXES = 8
_MAX_NUMBERS = max(CHANNELS) * MAX_SIDE**2  # of a sample
ALLOWED_SHAPE = f"1 to {_MAX_AXES} whole numbers of at least 1, {_MAX_NUMBERS:,} together"

_FORMAT = "fedkin model 1"
_NUMPY_NAMES = {"F32": "float32", "I64": "int64"}  # of the types of numbers that the models have


@dataclass(frozen=True)
class ModelCard:
    """The description of a saved model."""

    __pydantic_config__ = STRICT
    architecture: str  # one of `MODELS`, or an import path
    sample_shape: ImageShape
    class_names: tuple[str, ...]  # the name of each output, at most 10,000
    strategy: str  # that trained it, with the cluster and the number of rounds
    cluster: int
    num_rounds: int
    preparation: Preparation = NO_PREPARATION

    def __post_init__(self) -> None:
        allowed = {
            "architecture": (
                self.architecture in MODELS or is_import_path(self.architecture),
                f"one of {', '.join(MODELS)}, or an import path",
            ),
            "sample_shape": (is_shape(self.sample_shape), ALLOWED_SHAPE),
            "class_names": (1 <= len(self.class_names) <= MAX_CLASSES, f"1 to {MAX_CLASSES} texts"),
        }
        for name, (is_allowed, what) in allowed.items():
            if not is_allowed:
                value = reprlib.repr(getattr(self, name))
                raise ValueError(f"the card's {name} is {value}, but it must be {what}")
        self.preparation.check(self.sample_shape)


def save_model(
    path: Path,
    arrays: Mapping[str, NDArray[np.generic]],
    card: ModelCard,
    *,
    private: bool = False,
) -> None:
    """Write the arrays of a model's state_dict, by name, completely or not at all.

    If `private`, only the owner can read the file; otherwise who can read its folder. Arrays that
    are not those of the card's architecture are a ValueError.
    """
    forms = {name: f"{array.dtype.name} {array.shape}" for name, array in arrays.items()}
    try:
        _check_arrays(forms, _model_of(card), card)
    except ValueError as error:
        raise ValueError(f"{path} is not written: {error}.") from error
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with replacing(path, private=private) as temporary:
        # One entry: safetensors writes several in any order, and equal models make equal files.
        save_file(plain, temporary, {_FORMAT: to_json(card)})


def _model_of(card: ModelCard) -> nn.Module:
    return unfilled_model(card.architecture, card.sample_shape, len(card.class_names))


def load_model(path: Path, allowed_code: str = "") -> tuple[nn.Module, ModelCard]:
    """Read a model of `save_model`, in evaluation mode, and its card.

    No code runs that the file names, unless `allowed_code` is its import path. A wrong file, which
    is a ValueError, needs no more memory than its size. The model takes samples as prepared, pixels
    in [0, 1], and returns one logit per class.
    """
    with path.open("rb"):
        pass  # unlike safe_open, this names a file that is a folder or may not be read
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if _FORMAT not in metadata:
                raise ValueError(f"its format is not {_FORMAT}")
            card = from_json(ModelCard, metadata[_FORMAT])
            if is_import_path(card.architecture) and card.architecture != allowed_code:
                raise ValueError(
                    f'its model is "{card.architecture}", user-defined code, which a file may not '
                    "start: name it yourself, if you trust it"
                )
            model = _model_of(card)
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            forms = {
                name: f"{_NUMPY_NAMES.get(one.get_dtype(), 'another')} {tuple(one.get_shape())}"
                for name, one in slices.items()
            }
            _check_arrays(forms, model, card)
            # Copies: the tensors are mapped pages of the file, which may change.
            state = {name: file.get_tensor(name).clone() for name in slices}
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"{path} is not a model of this app ({error}): give one that a device saved."
        ) from error
    model.load_state_dict(state, assign=True)
    return model.eval(), card


def _check_arrays(given: Mapping[str, str], model: nn.Module, card: ModelCard) -> None:
    """Raise a ValueError if the arrays are not the model's."""
    expected = {name: described_tensor(tensor) for name, tensor in model.state_dict().items()}
    names = [*expected, *sorted(given.keys() - expected.keys())]
    wrong = [name for name in names if given.get(name) != expected.get(name)]
    if wrong:
        shape = "×".join(map(str, card.sample_shape))
        found, form = (forms.get(wrong[0], "missing") for forms in (given, expected))
        # An unknown name may be as long as the file.
        raise ValueError(
            f"{len(wrong)} of its arrays do not fit model {card.architecture} for {shape} images "
            f"and {len(card.class_names)} classes: {reprlib.repr(wrong[0])} is {found} but "
            f"should be {form}"
        )


def is_shape(value: tuple[int, ...]) -> bool:
    """Return whether a model can be built for samples of this shape."""
    return (
        1 <= len(value) <= _MAX_AXES
        and all(number > 0 for number in value)
        and prod(value) <= _MAX_NUMBERS
    )
