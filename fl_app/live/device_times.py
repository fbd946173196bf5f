"""What the rounds of devices consist of, by what they say with their answers."""

from __future__ import annotations

from fl_app.grid.quorum import Took
from fl_app.report.device_times import TIMES


class DeviceTimes:
    """Adds up each device's seconds in the steps of a run's rounds that it answered.

    A step lasts from its messages to the last answer that is waited for. Of that, a device says how
    long its process took to start, and the app to work. The rest of the time until its answer is
    there is `transfer`: messages under way, and programs that look for them now and then. After
    that, it is `waiting` for the other devices.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, dict[str, float]] = {}
        self._answered: dict[int, float] = {}

    def answered(self, client: int, seconds: float, took: Took) -> None:
        """Note an answer, so many seconds after the step began.

        Nobody is believed to have taken longer than it was waited for, nor a clock that was set
        back.
        """
        seconds = max(0.0, seconds)
        work = min(took.work, seconds)
        start_up = min(took.start_up, seconds - work)
        parts = {"start-up": start_up, "work": work, "transfer": seconds - work - start_up}
        mine = self._seconds.setdefault(client, dict.fromkeys(TIMES, 0.0))
        for part, value in parts.items():
            mine[part] += value
        self._answered[client] = seconds

    def over(self, seconds: float) -> None:
        """Note that a step has ended, so many seconds after it began."""
        for client, own in self._answered.items():
            self._seconds[client]["waiting"] += max(0.0, seconds - own)
        self._answered.clear()

    def found(self) -> dict[int, dict[str, float]]:
        """Return the seconds of each client that has answered, by what they went to."""
        return {
            client: {part: round(value, 3) for part, value in self._seconds[client].items()}
            for client in sorted(self._seconds)
        }
