"""The ServerApp: read the configuration, run the experiment."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fl_app.config.run_config import parse_config
from fl_app.devices.device_pool import DevicePool
from fl_app.devices.grid import DeviceGrid
from fl_app.run.experiment import run_experiment
from fl_app.simulation.simulated_clients import Simulation
from fl_core.data.settings import REAL_DEVICES
from fl_core.flower.server import HttpGrid
from fl_core.text import error_line
from fl_core.user_code import is_shutdown

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every strategy on every seed and write the results."""
    try:
        config = parse_config(context.run_config)
        if isinstance(grid, HttpGrid):
            grid = DeviceGrid(grid, config.min_answers)
        elif config.min_answers < 1:
            raise ValueError("min-answers must be 1: simulations by flwr run wait for all clients.")
        run_experiment(config, grid, DevicePool if config.dataset == REAL_DEVICES else Simulation)
    except KeyboardInterrupt:  # by Flower, when its SuperLink has ended
        print("error: the run was stopped from outside, or its SuperLink has ended.", flush=True)
        raise
    except (Exception, SystemExit) as error:
        if is_shutdown(error):
            raise
        # One line that can be found in Flower's log, before the traceback.
        print("error:", error_line(error).replace("\n", " "), flush=True)
        if isinstance(error, SystemExit):  # by a library; Flower would take it for a success
            raise RuntimeError(f"the run was ended by sys.exit({error.code!r})") from error
        raise
