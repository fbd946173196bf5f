"""The configuration of a node by its owner, and the identity with which it sends messages."""

from flwr.common.config import parse_config_args
from flwr.common.constant import APP_DIR
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.utils import get_flwr_home


def read_node_config(text: str) -> dict[str, object]:
    """Read a SuperNode's `--node-config` as Flower does; an unreadable one is a ValueError."""
    try:
        return {**parse_config_args([text])}
    except Exception as error:  # of Flower's command line
        raise ValueError(
            f"--node-config {text!r} cannot be read: give key=value pairs with spaces between them "
            'and texts in quotes, such as name="berlin" data-path="/srv/scans".'
        ) from error
