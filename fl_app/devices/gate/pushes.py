"""What a device may send: short texts, and its reply, with no more parts than a model has.

Flower's SuperLink checks who calls, but not whether a message is the caller's: it accepts messages
to other devices, and to itself, from any node. It logs texts as they come. It also locks its
database while it writes the names of a message's parts.
"""

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Request

from fl_core.flower.basics import SUPERLINK_NODE_ID
from fl_core.flower.calls import PROTOBUF_REQUEST_TYPES
from fl_core.flower.messages import (
    ActivateNodeRequest,
    ObjectTree,
    PushMessagesRequest,
    is_valid_sha256_hash,
)

# Of a message, each array counted twice: ResNet-50 has 645. The SuperLink's database is locked for
# a millisecond or two for each, and fails others after 5 seconds.
MOST_OBJECTS = 700
_LONGEST_TIME = 1e10  # seconds, since 1970 as well as of a message's life
_HASHES = {"hash_str", "message_id", "message_object_id", "object_id", "reply_to_message_id"}
MOST_CHARACTERS = 200  # of other texts of a request, such as the type of a message
MOST_CHARACTERS_OF_ERROR = 10_000  # of several lines, perhaps; the server shortens it
_DEEPEST = 6  # message, its content, a record, an array, a piece of it, and one to spare


class RefusedError(Exception):
    """A request is not passed on; at status 403, a SuperNode drops what it wanted to send."""

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.status = status


class UnsendableError(RefusedError):
    """A device's reply is too large, however often it is sent."""


def check_request(path: bytes, body: bytes, key: bytes) -> str:
    """Read a request, refuse what is not a device's, and return the id of its message or object.

    The SuperLink checks that the node that the request names has the `key` that signed its head.
    """
    try:
        request = PROTOBUF_REQUEST_TYPES["POST", path.decode("ascii")].FromString(body)
    except DecodeError:
        raise RefusedError("it cannot be read") from None
    _check_texts(request)
    if isinstance(request, ActivateNodeRequest) and request.public_key != key:
        raise RefusedError("it names another key than the one that signed it")
    if isinstance(request, PushMessagesRequest):
        _check_push(request)
        return str(request.messages_list[0].metadata.message_id)
    return str(getattr(request, "object_id", ""))


def _check_texts(request: Request) -> None:
    for field, value in request.ListFields():
        if field.type != field.TYPE_STRING:
            continue
        for text in [value] if isinstance(value, str) else value:
            if field.name in _HASHES and not is_valid_sha256_hash(text):
                raise RefusedError(f"its {field.name} is not a SHA-256 hash")
            if len(text) > MOST_CHARACTERS or not text.isprintable():
                raise RefusedError(
                    f"its {field.name} is not a line of at most {MOST_CHARACTERS} characters"
                )


def _check_push(request: PushMessagesRequest) -> None:
    """Refuse anything but a reply of its sender."""
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        raise RefusedError("it is not one message")
    (message,) = request.messages_list
    about = message.metadata
    _check_texts(about)
    if not about.reply_to_message_id:
        raise RefusedError("it is an instruction, and devices only reply")
    if about.src_node_id != request.node.node_id:
        raise RefusedError(f"it says that it is from node {about.src_node_id}")
    if about.dst_node_id != SUPERLINK_NODE_ID:
        raise RefusedError(f"it is for node {about.dst_node_id}")
    times = (about.created_at, about.ttl, *request.clientapp_runtime_list)
    if not all(0 <= seconds <= _LONGEST_TIME for seconds in times):  # refuses NaN, too
        raise RefusedError("its times are impossible")
    (tree,) = request.message_object_trees
    if tree.object_id != about.message_id:
        raise RefusedError("its parts are another message's")
    if message.content.ByteSize():
        raise RefusedError("its content is not in parts")
    if len(message.error.reason) > MOST_CHARACTERS_OF_ERROR:
        raise UnsendableError(f"its error has more than {MOST_CHARACTERS_OF_ERROR} characters")
    _check_parts(tree)


def _check_parts(tree: ObjectTree) -> None:
    children: dict[str, set[str]] = {}
    level, count = [tree], 0
    for _ in range(_DEEPEST):
        count += len(level)
        if count > MOST_OBJECTS:
            raise UnsendableError(f"it has more than {MOST_OBJECTS} parts")
        for part in level:
            names = {child.object_id for child in part.children}
            if not is_valid_sha256_hash(part.object_id) or len(names) != len(part.children):
                raise RefusedError("the names of its parts are not SHA-256 hashes, each once")
            if children.setdefault(part.object_id, names) != names:
                raise RefusedError("one of its parts is listed with different parts")
        level = [child for part in level for child in part.children]
    if level:
        raise RefusedError(f"its parts are nested more than {_DEEPEST} deep")
