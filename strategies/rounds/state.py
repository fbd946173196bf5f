"""What a strategy's parts learn in one round for a later one, and how checkpoints store it."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import field
from typing import Any, TypeVar

State = TypeVar("State")


def state_field(factory: Callable[[], State]) -> State:
    """Return a dataclass field for what a part learns during training: see `Stateful.memory`."""
    made: State = field(default_factory=factory, init=False, repr=False, compare=False)
    return made


class Stateful:
    """A part of a strategy with state: its clustering, or its aggregation."""

    def memory(self) -> dict[str, Any]:
        """Return the state for a checkpoint: plain values and arrays that are no arguments."""
        all_fields = getattr(self, "__dataclass_fields__", {}).values()
        names = [f.name for f in all_fields if not f.init and hasattr(self, f.name)]
        return {name: copy(getattr(self, name)) for name in names}

    def forget(self) -> None:
        """Return to the state of a new part, before another training."""
        for one in getattr(self, "__dataclass_fields__", {}).values():
            if not one.init and callable(one.default_factory):
                object.__setattr__(self, one.name, one.default_factory())

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restore what `memory` returned."""
        for name, value in memory.items():
            object.__setattr__(self, name, value)  # frozen, as aggregations are
