"""The ServerApp: read the configuration, run the experiment."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fl_app.config import parse_config
from fl_app.experiment import run_experiment

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every strategy on every seed and write the results."""
    run_experiment(parse_config(context.run_config), grid)
