"""The peak of memory, or of other numbers, while something runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping


class Peak:
    """The largest of some sizes while the block runs, looked at again and again, by their names.

    Numpy's arrays are seen, whatever allocates them, if sizes are resident ones.

    Attributes
    ----------
    largest : dict of float
        The largest so far.
    """

    def __init__(self, sizes: Callable[[], Mapping[str, float]], every: float) -> None:
        """Look at `sizes()` every so many seconds."""
        self._sizes, self._every = sizes, every
        self.largest: dict[str, float] = {}

    def __enter__(self) -> Peak:
        self._look()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(self._every):
            self._look()

    def _look(self) -> None:
        for name, size in self._sizes().items():
            self.largest[name] = max(self.largest.get(name, 0), size)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
