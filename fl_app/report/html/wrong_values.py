"""Files that anybody may have written: what reads them by types; what is wrong, in a sentence."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fl_core.text import printable

_WORDS = {
    "integer": "a whole number",
    "string": "text",
    "number": "a number",
    "array": "a list",
    "object": "a table",
}


@lru_cache
def checker(kind: Any) -> TypeAdapter[Any]:
    """Return what reads values of that type; a large one takes a tenth of a second to prepare."""
    return TypeAdapter(kind)


def what_is_wrong(error: ValidationError) -> str:
    """Return a sentence about the first value that is not what its type says."""
    first = error.errors()[0]
    *above, key = first["loc"] or ("",)
    where, at = ".".join(map(str, above)) or "the file", ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{where} lacks the key {key}."
    if first["type"] == "unexpected_keyword_argument":
        return f"{where} has no key {key}: see docs/results.md for those it has."
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    said = first["msg"].replace("Input should be ", "it must be ")
    for word, ours in _WORDS.items():
        said = said.replace(f"a valid {word}", ours)
    return f"{at} is {printable(repr(first['input']))[:60]}, but {said}."
