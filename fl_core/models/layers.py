"""Layers of a model, by the names of its arrays."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fl_core.options import NotAllowedError, Rule

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")

LAST = "last"


def _parse_names(value: Any) -> str:
    names = [name.strip() for name in str(value).split(",")]
    if all(re.fullmatch(r"\w+(\.\w+)*", name) for name in names):
        return ",".join(names)
    raise NotAllowedError


LAYER_NAMES = Rule(f'"{LAST}", or names of layers separated by commas', _parse_names)


def is_within(name: str, layers: Iterable[str]) -> bool:
    """Return whether an array belongs to one of these layers.

    Examples
    --------
    >>> is_within("conv1.weight", ["conv1"]), is_within("conv10.weight", ["conv1"])
    (True, False)
    """
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def split(
    arrays: Mapping[str, Value], layers: Sequence[str]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Split arrays into those outside these layers and those within; their order stays."""
    outside, within = dict[str, Value](), dict[str, Value]()
    for name, array in arrays.items():
        (within if is_within(name, layers) else outside)[name] = array
    return outside, within


def with_layer(layer: str, arrays: Mapping[str, Value]) -> dict[str, Value]:
    """Return arrays under the names that they have within a layer."""
    return {f"{layer}.{name}": array for name, array in arrays.items()}


def without_layer(arrays: Mapping[str, Value]) -> dict[str, Value]:
    """Return arrays of a layer under the names that they had for `with_layer`."""
    return {name.partition(".")[2]: array for name, array in arrays.items()}


def tensor_in_both(arrays: Mapping[str, Tensor], layers: Sequence[str]) -> tuple[str, str] | None:
    """Return two names of a shared tensor, the first within these layers, the second outside."""
    outside, within = split(arrays, layers)
    names = {array.data_ptr(): name for name, array in outside.items() if array.numel()}
    shared = (name for name, array in within.items() if array.data_ptr() in names)
    return next(((name, names[arrays[name].data_ptr()]) for name in shared), None)


def layer_of(name: str) -> str:
    """Return the layer of an array: `hidden` for `hidden.weight`, `w` for `w`.

    An array of a parametrization, such as weight normalisation, belongs to the layer that it
    computes an array of.
    """
    layer, computed, _ = name.partition(".parametrizations.")
    return layer if computed else name.rpartition(".")[0] or name


def layers_of(names: Iterable[str]) -> list[str]:
    """Return the layers of arrays with these names, in their order."""
    return list(dict.fromkeys(map(layer_of, names)))


def check_layers(key: str, layers: Iterable[str], names: Collection[str]) -> None:
    """Raise a ValueError for a layer in the run-config key `key` that has none of the arrays."""
    for layer in layers:
        if not any(is_within(name, [layer]) for name in names):
            there = ", ".join(layers_of(names))
            raise ValueError(f'{key} names "{layer}", but the model\'s layers are {there}.')


def named_layers(key: str, text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the layers in `text`, the value of a run-config key; `LAST` is the last one."""
    names = list(names)
    there = layers_of(names)
    chosen = (there[-1],) if text == LAST else tuple(one.strip() for one in text.split(","))
    check_layers(key, chosen, names)
    if all(is_within(name, chosen) for name in names):
        raise ValueError(
            f'{key} is "{text}", which is all layers of the model ({", ".join(there)}), so that '
            "none would be shared: choose a model of more layers, fewer private ones, or the "
            "strategy local."
        )
    return chosen
