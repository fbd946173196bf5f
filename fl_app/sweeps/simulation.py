"""A `fedkin run` that ends with its sweep: `python -m MODULE PARENT run …`.

PARENT is the process id of the sweep.
"""

import runpy
import signal
import sys

from fl_app.devices.site.child_processes import can_fork_safely, die_with_parent

if __name__ == "__main__":
    if can_fork_safely():  # that is, on Linux
        die_with_parent(int(sys.argv[1]), signal.SIGTERM)
    sys.argv[1:] = sys.argv[2:]
    runpy.run_module("fl_app.cli", run_name="__main__")
