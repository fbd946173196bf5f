"""What a node's owner configures, and in whose name a node speaks.

Nothing public serves: SuperNodes are programs, and neither say what they were told nor let others
send in their name.
"""

from flwr.common.config import parse_config_args
from flwr.common.constant import APP_DIR
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.utils import get_flwr_home


def read_node_config(text: str) -> dict[str, object]:
    """Read a SuperNode's `--node-config` as Flower does.

    Raises
    ------
    ValueError
        If it cannot be read.
    """
    try:
        return {**parse_config_args([text])}
    except Exception as error:  # of Flower's command line
        raise ValueError(
            f"--node-config {text!r} cannot be read: give key=value pairs with spaces between them "
            'and texts in quotes, such as name="berlin" data-path="/srv/scans".'
        ) from error
