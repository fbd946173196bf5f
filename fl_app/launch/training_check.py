"""What a simulation that trains needs of this machine, found out before anything starts."""

from __future__ import annotations

from pathlib import Path

from fl_app.config.preflight import check_run
from fl_app.config.run_config import Config
from fl_app.launch.resources import gpus_per_client
from fl_app.live.trackers import check_tracker


def check_training(config: Config, folder: Path) -> None:
    """Refuse a simulation that cannot be, or that trains nothing, so that it has no summary.

    Raises
    ------
    ValueError
        As `check_run`; or if there are no rounds, a GPU is needed and there is none, or the
        tracker cannot work here.
    MissingExtraError
        If the tracker's package is not installed.
    """
    if not config.num_server_rounds:
        raise ValueError(
            "num-server-rounds is 0, which only groups clients: choose at least 1, or use fedkin "
            "group."
        )
    check_tracker(config.track)
    check_run(config, folder)
    gpus_per_client(config.device, 1, None)
