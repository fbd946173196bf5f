"""The server's connections to nodes: Flower's grid and its control interface."""

from flwr.supercore.control import ControlHttpClient
from flwr.superlink.grid import HttpGrid
