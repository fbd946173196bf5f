"""Calls of a SuperLink by a node with its key: with them Flower imports a web server, 0.2 s."""

from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
