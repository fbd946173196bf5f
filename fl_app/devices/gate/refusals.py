"""The log of refused requests: a flood of them must not fill the disk."""

import asyncio
import logging
from collections import Counter

from fl_core.text import one_line

MOST_ADDRESSES = 100  # named in a window; further ones are counted together
WINDOW_SECONDS = 60.0

_log = logging.getLogger("fedkin.gate")


class RefusalLog:
    """Logs the first refusal of each address, and how many have followed, once a minute."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def note(self, address: str, reason: str) -> None:
        """Log or count a refusal."""
        if not self._count:
            asyncio.get_running_loop().call_later(WINDOW_SECONDS, self._end_window)
        shown = one_line(address, 60)
        if shown not in self._count and len(self._count) >= MOST_ADDRESSES:
            shown = "other addresses"
        self._count[shown] += 1
        if self._count[shown] == 1:
            _log.warning("refused %s %s", shown, one_line(reason))

    def _end_window(self) -> None:
        for address, count in self._count.items():
            if count > 1:
                _log.warning("refused %s %d more times in a minute", address, count - 1)
        self._count.clear()
