"""Rules on values that go together, which need no data."""

from __future__ import annotations

from fl_app.config.run_config import Config
from strategies.catalogue import system_of


def check_num_clusters(config: Config, wanted: int, num_clients: int) -> None:
    """Refuse more clusters than there are clients at the start, by a ValueError."""
    exact = any(system_of(name).clustering.exact_number for name in config.strategy)
    if wanted > num_clients and exact:
        raise ValueError(
            f"num-clusters is {wanted}, but there are {num_clients} clients"
            f"{' at the start' if config.newcomers else ''}: choose 1 to {num_clients}."
        )
