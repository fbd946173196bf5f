"""What a node's owner configures, and in whose name a node speaks.

Nothing public serves: SuperNodes are programs, and neither say what they were told nor let others
send in their name.
"""

from flwr.common.config import parse_config_args
from flwr.common.constant import APP_DIR
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.utils import get_flwr_home
