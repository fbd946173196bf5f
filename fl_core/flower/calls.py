"""Calls of a SuperLink by a node's own key, and what its refusals say.

Nothing public serves: SuperNodes are programs. Apart from `node` and `basics`, since Flower brings
a web server with these, a fifth of a second of every client's start.
"""

from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
