"""A node's way to the SuperLink, what its owner configures, and in whose name it speaks.

Nothing public serves: SuperNodes are programs, and neither say what they were told nor let others
send in their name.
"""

from flwr.common.config import parse_config_args
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

__all__ = [
    "FleetHttpClient",
    "NodeAuthHttpInterceptor",
    "TaskIdentity",
    "parse_config_args",
]
