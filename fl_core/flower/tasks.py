"""How a SuperNode's messages are taken from it, and answered by the run's app.

Nothing public serves: `flower-superexec` and `flwr-clientapp` are programs, which import all of
Flower and of the app anew for each message.
"""

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.address import resolve_bind_address
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import run_clientapp

__all__ = [
    "AcquireTaskRequest",
    "RuntimeHttpClient",
    "RuntimeVersionHttpInterceptor",
    "TaskType",
    "resolve_bind_address",
    "run_clientapp",
]
