"""Dataclasses as JSON, from files and messages that are not trusted.

With `__pydantic_config__ = STRICT`, pydantic checks their types; `__post_init__` checks values.
"""

from functools import cache
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fl_core.text import printable

STRICT = ConfigDict(strict=True, extra="forbid")
_WORDS = {
    "integer": "a whole number",
    "string": "text",
    "number": "a number",
    "array": "a list",
    "tuple": "a list",
    "boolean": "true or false",
    "object": "a table",
}

Record = TypeVar("Record")


@cache
def checker(kind: Any) -> TypeAdapter[Any]:
    """Return the cached adapter of a type; a large one takes 0.1 s to build."""
    return TypeAdapter(kind)


def to_json(record: Any, indent: int | None = None) -> str:
    """Return a dataclass as JSON, by the keys of its fields; a number that is NaN is null."""
    kind: Any = type(record)
    return checker(kind).dump_json(record, indent=indent, by_alias=True).decode()


def from_json(kind: type[Record], text: str) -> Record:
    """Read a dataclass from JSON; a ValueError names the first field that is not allowed."""
    try:
        of_kind: Any = kind
        record: Record = checker(of_kind).validate_json(text)
    except ValidationError as error:
        raise ValueError(validation_message(error)) from None
    return record


def validation_message(error: ValidationError, page: str = "docs/results.md") -> str:
    """Return a sentence about the first wrong value; `page` lists the keys."""
    first = error.errors()[0]
    *above, key = first["loc"] or ("",)
    where, at = (printable(".".join(map(str, one))) or "it" for one in (above, first["loc"]))
    if first["type"] == "missing":
        return f"{where} lacks the key {key}."
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{where} has no key {printable(str(key))[:60]}: see {page} for those it has."
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "json_invalid":
        return printable(first["msg"])
    expected = first["msg"].replace("Input should be ", "it must be ")
    for word, plain in _WORDS.items():
        expected = expected.replace(f"a valid {word}", plain)
    return f"{at} is {printable(repr(first['input']))[:60]}, but {expected}."
