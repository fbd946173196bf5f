"""Numbers and names that Flower's programs agree on.

Nothing public serves: `flwr.app` has messages and records, not what their errors and headers mean.
"""

from flwr.common.constant import (
    SUPERLINK_NODE_ID,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    ErrorCode,
)
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    NodeStatus,
)
from flwr.supercore.date import now
