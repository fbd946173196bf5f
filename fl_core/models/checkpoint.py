"""Save the state of a strategy as one safetensors file: plain values and arrays, no code."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fl_core.files import replacing
from fl_core.text import type_name

_FORMAT = "fedkin checkpoint 4"
_STATE = "state"  # arrays have numbers for names
_SEQUENCES: dict[str, Callable[[Iterable[Any]], Any]] = {
    kind.__name__: kind for kind in (list, tuple, set, frozenset)
}

Arrays = dict[str, NDArray[np.generic]]


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write `state` completely or not at all.

    It has None, bool, int, float, str and arrays, in dicts, lists, tuples, sets and frozensets.
    An array that occurs several times is stored once; a NumPy scalar is read as an array.
    """
    arrays: Arrays = {}
    names: dict[int, str] = {}
    tree = _encoded(dict(state), arrays, names)
    # Not in the metadata: the format has room for 100 MB there, which many clients' scores fill.
    arrays[_STATE] = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    with replacing(path) as temporary:
        save_file(arrays, temporary, metadata={"format": _FORMAT})


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote, with its types."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if (stored := metadata.get("format")) != _FORMAT:
                raise ValueError(f"its format is {stored or 'missing'}, not {_FORMAT}")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            state: dict[str, Any] = _decoded(json.loads(arrays.pop(_STATE).tobytes()), arrays)
            return state
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a checkpoint of this app ({error}): resume from another folder."
        ) from error


def _encoded(value: Any, arrays: Arrays, names: dict[int, str]) -> Any:
    """Return `value` for JSON, its arrays moved to `arrays` under `names`, by identity."""
    if isinstance(value, np.ndarray | np.generic):
        name = names.setdefault(id(value), str(len(names)))
        arrays.setdefault(name, np.asarray(value, order="C"))
        return {"array": name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        pairs = ((_hashable(key), entry) for key, entry in value.items())
        return {"dict": [[_encoded(part, arrays, names) for part in pair] for pair in pairs]}
    if isinstance(value, list | tuple | set | frozenset):
        # The file must not depend on the order of a set.
        parts = sorted(map(_hashable, value)) if isinstance(value, set | frozenset) else value
        return {type(value).__name__: [_encoded(part, arrays, names) for part in parts]}
    raise TypeError(f"a checkpoint cannot hold {type_name(value)}.")


def _hashable(key: Any) -> Any:
    """Convert a number of NumPy, which would be read as an array, to one of Python."""
    return key.item() if isinstance(key, np.generic) else key


def _decoded(tree: Any, arrays: Arrays) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {_decoded(key, arrays): _decoded(value, arrays) for key, value in content}
    return _SEQUENCES[kind](_decoded(part, arrays) for part in content)
