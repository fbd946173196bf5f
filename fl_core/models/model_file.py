"""A trained model as one safetensors file that says what the model is and what it tells apart."""

from __future__ import annotations

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

from fl_core.data.preparation import AS_THEY_COME, Preparation
from fl_core.data.settings import MODELS
from fl_core.files import replacing
from fl_core.json_records import STRICT, from_json, to_json
from fl_core.models.build import ImageShape, unfilled_model
from fl_core.user_code import is_own

CHANNELS = (1, 3)
MAX_SIDE = 1024  # pixels
MAX_CLASSES = 10_000
_MOST_SIDES = 8
_MOST_NUMBERS = max(CHANNELS) * MAX_SIDE**2  # of a sample
SHAPE_WANTED = f"1 to {_MOST_SIDES} whole numbers of at least 1, {_MOST_NUMBERS:,} together"

_FORMAT = "fedkin model 1"
_PART = "fedkin shared layers 1"
_NUMPY_NAMES = {"F32": "float32", "I64": "int64"}  # of the types of numbers that the models have

_Form = tuple[tuple[int, ...], str]
"""An array's shape and the name of its dtype."""


@dataclass(frozen=True)
class ModelCard:
    """What a saved model is.

    Attributes
    ----------
    architecture : str
        One of `fl_core.data.settings.MODELS`, or the import path of one's own.
    image_shape : tuple of int
        Channels, height and width of the images, 1024 pixels a side at most; of other samples, any
        shape of so many numbers at most.
    class_names : tuple of str
        The name of each output, 10,000 at most.
    strategy, cluster, num_rounds
        The strategy that trained it, for whom, and how long.
    preparation : Preparation
        What was done to samples before.

    Raises
    ------
    ValueError
        If a value is not of these.
    """

    __pydantic_config__ = STRICT
    architecture: str
    image_shape: ImageShape
    class_names: tuple[str, ...]
    strategy: str
    cluster: int
    num_rounds: int
    preparation: Preparation = AS_THEY_COME

    def __post_init__(self) -> None:
        wanted = {
            "architecture": (
                self.architecture in MODELS or is_own(self.architecture),
                f"one of {', '.join(MODELS)}, or an import path",
            ),
            "image_shape": (is_shape(self.image_shape), SHAPE_WANTED),
            "class_names": (1 <= len(self.class_names) <= MAX_CLASSES, f"1 to {MAX_CLASSES} texts"),
        }
        for name, (is_right, what) in wanted.items():
            if not is_right:
                value = reprlib.repr(getattr(self, name))
                raise ValueError(f"the card's {name} is {value}, but it must be {what}")
        self.preparation.check(self.image_shape)


def save_model(
    path: Path,
    arrays: Mapping[str, NDArray[np.generic]],
    card: ModelCard,
    *,
    is_shared_part: bool = False,
) -> None:
    """Write a model completely or not at all, from its arrays' names in its state dict.

    If they are the layers that clients share alone, `load_model` refuses the file.

    Raises
    ------
    ValueError
        If the arrays are not those of the card's architecture.
    OSError
        If the file cannot be written.
    """
    if not is_shared_part:
        forms = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
        try:
            _check_arrays(forms, _model_of(card), card)
        except ValueError as error:
            raise ValueError(f"{path} is not written: {error}.") from error
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with replacing(path) as temporary:
        # One entry: safetensors writes several in any order, and equal models are equal files.
        save_file(plain, temporary, {_PART if is_shared_part else _FORMAT: to_json(card)})


def _model_of(card: ModelCard) -> nn.Module:
    return unfilled_model(card.architecture, card.image_shape, len(card.class_names))


def load_model(path: Path, own: str = "") -> tuple[nn.Module, ModelCard]:
    """Read what `save_model` wrote, without running any code that the file may hold or name.

    A file that lies about itself costs no more memory than its own size.

    Parameters
    ----------
    own : str
        The import path of the model, if it is one of the reader's own.

    Returns
    -------
    nn.Module
        In evaluation mode. Takes pixels in [0, 1], float32 (n, C, H, W), and returns one logit per
        class.
    ModelCard
        What it is.

    Raises
    ------
    ValueError
        If the file is not a whole model of this app.
    OSError
        If it cannot be read.
    """
    with path.open("rb"):
        pass  # unlike safe_open, this names the file that is a folder or may not be read
    try:
        with safe_open(path, framework="pt") as file:
            card = _read_card(file.metadata() or {})
            if is_own(card.architecture) and card.architecture != own:
                raise ValueError(_unnamed(card.architecture))
            model = _model_of(card)
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            forms = {
                name: (tuple(part.get_shape()), _NUMPY_NAMES.get(part.get_dtype(), "another type"))
                for name, part in slices.items()
            }
            _check_arrays(forms, model, card)
            # Copies, since the tensors themselves are the file's own pages, which may change.
            state = {name: file.get_tensor(name).clone() for name in slices}
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"{path} is not a model of this app ({error}): give one that a device saved at its "
            "model-path."
        ) from error
    model.load_state_dict(state, assign=True)
    return model.eval(), card


def _unnamed(architecture: str) -> str:
    return (
        f'its model is "{architecture}", code of somebody\'s own, and a file does not say what may '
        "run here: name it yourself, if you trust it"
    )


def _read_card(metadata: Mapping[str, str]) -> ModelCard:
    if _PART in metadata:
        raise ValueError(
            "it has the layers that clients share, and each client keeps the others for itself"
        )
    if _FORMAT not in metadata:
        raise ValueError(f"it does not say that it is a {_FORMAT}")
    return from_json(ModelCard, metadata[_FORMAT])


def _check_arrays(given: Mapping[str, _Form], model: nn.Module, card: ModelCard) -> None:
    """Raise a ValueError if the arrays are not the model's."""
    wanted = {
        name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in model.state_dict().items()
    }
    names = [*wanted, *sorted(given.keys() - wanted.keys())]
    wrong = [name for name in names if given.get(name) != wanted.get(name)]
    if wrong:
        shape = "×".join(map(str, card.image_shape))
        # An unknown name may be as long as the file.
        raise ValueError(
            f"{len(wrong)} of its arrays do not fit model {card.architecture} for "
            f"{shape} images and {len(card.class_names)} classes: "
            f"{reprlib.repr(wrong[0])} is {_described(given.get(wrong[0]))} but should be "
            f"{_described(wanted.get(wrong[0]))}"
        )


def _described(form: _Form | None) -> str:
    return "missing" if form is None else f"{form[1]} {form[0]}"


def is_shape(value: tuple[int, ...]) -> bool:
    """Return whether a value is the shape of samples that a model can be made for."""
    return (
        1 <= len(value) <= _MOST_SIDES
        and all(number > 0 for number in value)
        and prod(value) <= _MOST_NUMBERS
    )
