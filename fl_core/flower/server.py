"""The server's ways to the nodes: Flower's own grids, and its control interface.

Nothing public serves: `flwr.serverapp.Grid` does not say which of them it is, and `flwr` has a
command line for nodes, no functions.
"""

from flwr.supercore.control import ControlHttpClient
from flwr.superlink.grid import HttpGrid, InMemoryGrid
