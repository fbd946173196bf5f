"""Flower's grid for real devices, none of which is trusted to answer for another."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from datetime import datetime
from functools import partial
from typing import TypeVar, cast

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fl_app.devices.registry import Registration, Registrations, registered_name
from fl_app.run.quorum import Patience, QuorumGrid, failure
from fl_core.flower.basics import SUPERLINK_NODE_ID
from fl_core.flower.messages import (
    ConfirmMessageReceivedRequest,
    Node,
    ObjectTree,
    PullAppMessagesRequest,
    get_object_body,
    get_object_head_values_from_object_content,
    get_object_type_from_object_content,
    inflate_object_from_contents,
    iterate_object_tree,
    make_pull_object_fn_protobuf,
    pull_objects,
)
from fl_core.flower.server import HttpGrid
from fl_core.messages import protocol
from fl_core.messages.packing import Packer, is_piece, unpack_content
from fl_core.messages.protocol import max_answer_bytes
from fl_core.text import one_line

_PAUSE = 1.0  # seconds at most between two looks for answers
_LOOKS = 8.0  # requests per second: a look makes one for each missing answer
_FETCHES = 4  # answers at a time, since each request is a write to the SuperLink's database
_STUCK = 5.0  # seconds after which a fetch is not counted any more: its sender may be dead
_PAUSES = (1.0, 2.0, 4.0, *[8.0] * 5)  # seconds before a failed request is repeated
# Bytes of an answer beside its arrays: names, metrics, texts. As Python's objects they become some
# twenty times as large.
_MOST_WORDS = 2**20
_NAMING: Mapping[str, type[ArrayRecord | RecordDict]] = {
    kind.__name__: kind for kind in (ArrayRecord, RecordDict)
}

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _Fetch(Future[Message | None]):
    """An answer that a thread fetches; None: there is none yet."""

    def __init__(self, fetch: Callable[[], Message | None]) -> None:
        super().__init__()
        self.started = time.monotonic()
        # An executor's threads would keep the process alive until Flower abandons the answer.
        threading.Thread(target=self._run, args=(fetch,), daemon=True).start()

    def _run(self, fetch: Callable[[], Message | None]) -> None:
        try:
            self.set_result(fetch())
        except BaseException as error:  # raised again by `result`
            self.set_exception(error)


class DeviceGrid(QuorumGrid):
    """A grid on which no device can answer for another, or make another's answer fail.

    Flower's grid accepts any pulled message as an answer, and trusts the sender that it names. It
    fetches all answers together, so one that cannot be fetched or unpacked ends the run, and one
    that is still being sent lets the others expire. It unpacks answers of any size. Here, an answer
    comes from the node to which its message was sent, and each is fetched separately. It has at
    most twice the bytes of the largest message so far, and a little more. The names of a message's
    parts are unpredictable (`fl_core.messages.packing`).
    """

    def __init__(self, grid: HttpGrid, min_answers: float = 1.0) -> None:
        super().__init__(grid, min_answers)
        self._http = grid
        self._node = Node(node_id=SUPERLINK_NODE_ID)
        self._largest = 0
        self._registrations: dict[int, Registration] = {}
        self._began: dict[int, float] = {}
        self._fetched: dict[str, _Fetch] = {}

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are connected."""
        nodes = _retry(lambda: list(self._http.get_nodes()))
        for node in nodes:
            # Without TLS, no key is registered: each SuperNode makes a new one at each start.
            if node.node_id not in self._registrations and not self._http._insecure:
                self._registrations[node.node_id] = Registration.of(node)
            if node.last_activated_at:
                began = datetime.fromisoformat(node.last_activated_at)
                self._began[node.node_id] = began.timestamp()
        return [node.node_id for node in nodes]

    def registrations(self) -> Registrations:
        """Return those of all nodes that were connected in this run; none without TLS."""
        return self._registrations

    def _called(self, node: int) -> str:
        return registered_name(self._registrations, node) or f"node {node}"

    def _exchange(
        self, messages: list[Message], patience: Patience
    ) -> tuple[list[Message], dict[str, Message]]:
        waiting, over = self._push(messages), threading.Event()
        try:
            return self._receive(waiting, patience, over), waiting
        finally:
            over.set()

    def _receive(
        self, waiting: dict[str, Message], patience: Patience, over: threading.Event
    ) -> list[Message]:
        """Return the answers that come in time, and remove their messages from `waiting`."""
        fetched: dict[str, _Fetch] = {}
        replies = []
        while waiting:
            for number, message in waiting.items():
                if number not in fetched:
                    _wait_for_room(fetched.values())
                    fetched[number] = _Fetch(partial(self._answer, number, message, over))
            wait(fetched.values(), _PAUSE)
            for number in [number for number, fetch in fetched.items() if fetch.done()]:
                answer = fetched.pop(number).result()
                if answer is not None:
                    replies.append(answer)
                    patience.count([answer])
                    del waiting[number]
            if time.monotonic() + _PAUSE > patience.end:
                break
            if waiting:
                time.sleep(min(_PAUSE, len(waiting) / _LOOKS))
        if patience.has_quorum:
            self._fetched |= fetched
        return replies

    def _discard_late_replies(self, late: Mapping[str, Message]) -> list[str]:
        over = threading.Event()
        over.set()
        known, self._fetched = self._fetched, {}
        # A SuperNode that has restarted since does not answer earlier messages.
        lost = [number for number, message in late.items() if self._has_restarted(message)]
        for number, message in late.items():
            if number in lost:
                continue
            # An answer that was being fetched at the end of its round may be fetched by now.
            look = known.get(number)
            if look is None or (look.done() and look.result() is None):
                _wait_for_room(self._fetched.values())
                look = _Fetch(partial(self._answer, number, message, over))
            self._fetched[number] = look
        wait(self._fetched.values(), _STUCK)
        done = {number: look for number, look in self._fetched.items() if look.done()}
        return lost + [number for number, look in done.items() if look.result() is not None]

    def _has_restarted(self, message: Message) -> bool:
        """Return whether a message's node has started after the message was sent."""
        about = message.metadata
        return about.created_at < self._began.get(about.dst_node_id, 0.0)

    def _push(self, messages: Sequence[Message]) -> dict[str, Message]:
        """Return the messages that the SuperLink accepted, by its ids."""
        sizes = [protocol.payload_bytes(message.content) for message in messages]
        self._largest = max([self._largest, *sizes])
        packer = Packer()  # which packs them together
        sent = [
            Message(
                packer.pack(message.content),
                dst_node_id=message.metadata.dst_node_id,
                message_type=message.metadata.message_type,
                ttl=message.metadata.ttl,
                group_id=message.metadata.group_id,
            )
            for message in messages
        ]
        # To push the same message twice is to push it once. A message that could not be pushed has
        # None or an empty text as its id; if no message could be pushed, the list is empty.
        numbers = _retry(lambda: list(self._grid.push_messages(sent)))
        return {number: message for number, message in zip(numbers, sent, strict=False) if number}

    def _answer(self, number: str, message: Message, over: threading.Event) -> Message | None:
        """Return the answer to a message, or None if there is none yet; `over` ends the look."""
        try:
            request = PullAppMessagesRequest(message_ids=[number])
            pulled = _retry(lambda: self._http._runtime_client.PullMessages(request))
            for one, tree in zip(pulled.messages_list, pulled.message_object_trees, strict=True):
                about = one.metadata
                # The SuperLink itself answers if a node has left or the message has expired.
                senders = (message.metadata.dst_node_id, SUPERLINK_NODE_ID)
                if about.reply_to_message_id == number and about.src_node_id in senders:
                    return self._unpacked(about.message_id, tree, message, over)
                _log.warning(
                    "a message that is no answer is ignored: its sender is %s, but the answer of "
                    "%s was requested",
                    *map(self._called, (about.src_node_id, message.metadata.dst_node_id)),
                )
            return None
        except httpx.TransportError:
            raise  # the SuperLink has stopped; no device can cause this
        except Exception as error:  # bytes from the network may be anything
            return failure(message, f"its answer cannot be fetched: {one_line(str(error))}")

    def _unpacked(
        self, message_id: str, tree: ObjectTree, asked: Message, over: threading.Event
    ) -> Message:
        """Fetch an answer's objects and assemble them."""
        client, run_id = self._http._runtime_client, self.run.run_id
        most = max_answer_bytes(self._largest)
        pull = make_pull_object_fn_protobuf(client.PullObject, self._node, run_id)
        try:
            contents = pull_objects(
                [part.object_id for part in iterate_object_tree(tree)],
                pull_object_fn=_bounded(lambda name: _retry(lambda: pull(name)), most, over),
            )
        finally:
            self._confirm(message_id)
        numbers, words = unfolded_bytes(message_id, contents)
        if numbers > most:
            raise ValueError(_too_large(most))
        if words > _MOST_WORDS:
            raise ValueError(_too_large(_MOST_WORDS, " beside its arrays"))
        found = cast(Message, inflate_object_from_contents(message_id, contents))
        if found.has_error():
            return Message(found.error, reply_to=asked)
        return Message(unpack_content(found.content), reply_to=asked)

    def _confirm(self, message_id: str) -> None:
        """Let the SuperLink delete an answer."""
        received = ConfirmMessageReceivedRequest(
            node=self._node, run_id=self.run.run_id, message_object_id=message_id
        )
        try:
            _retry(lambda: self._http._runtime_client.ConfirmMessageReceived(received))
        except httpx.HTTPStatusError as error:  # the answer is here, and goes with the run
            _log.warning("the SuperLink cannot delete a fetched answer: %s", one_line(str(error)))


def unfolded_bytes(root: str, contents: Mapping[str, bytes]) -> tuple[int, int]:
    """Return the bytes of arrays, and of the rest, that a message has once it is assembled.

    An array can name its pieces, a record its arrays, and a message its records any number of
    times: a few megabytes can become gigabytes. `root` is the message's object id, and `contents`
    has all its objects by id, as Flower writes them.
    """
    pieces = {name for name, content in contents.items() if _is_piece(content)}
    known = {name: len(contents[name]) for name in pieces}

    def numbers(name: str) -> int:
        if name not in known:
            known[name] = sum(map(numbers, _parts(contents[name])))
        return known[name]

    words = sum(len(content) for name, content in contents.items() if name not in pieces)
    return numbers(root) if words <= _MOST_WORDS else 0, words


def _is_piece(content: bytes) -> bool:
    """Return whether an object is a piece of an array, or of packed arrays."""
    kind = get_object_type_from_object_content(content)
    if kind == "ConfigRecord":
        return is_piece(get_object_body(content, ConfigRecord))
    return kind == "ArrayChunk"


def _parts(content: bytes) -> Iterable[str]:
    """Return the ids of an object's parts, each as often as it is used."""
    kind, children, _ = get_object_head_values_from_object_content(content)
    if kind == "Array":
        pieces = json.loads(get_object_body(content, Array))["arraychunk_ids"]
        return [children[piece] for piece in pieces]
    if kind in _NAMING:
        return list(json.loads(get_object_body(content, _NAMING[kind])).values())
    return children


def _bounded(
    pull: Callable[[str], bytes], most: int, over: threading.Event
) -> Callable[[str], bytes]:
    """Return a thread-safe function that pulls objects of `most` bytes in all, until `over`."""
    pulled, lock = 0, threading.Lock()

    def pull_bounded(object_id: str) -> bytes:
        nonlocal pulled
        if over.is_set():
            raise TimeoutError("it came too late")
        content = pull(object_id)
        with lock:
            pulled += len(content)
        if pulled > most:
            raise ValueError(_too_large(most))
        return content

    return pull_bounded


def _wait_for_room(fetches: Iterable[_Fetch]) -> None:
    """Wait until another answer may be fetched."""
    now = time.monotonic()
    busy = [one for one in fetches if not one.done() and now < one.started + _STUCK]
    if len(busy) >= _FETCHES:
        wait(busy, min(one.started for one in busy) + _STUCK - now, FIRST_COMPLETED)


def _retry(call: Callable[[], _T]) -> _T:
    """Repeat a request while the SuperLink answers 500, as it does with a locked database."""
    for pause in _PAUSES:
        try:
            return call()
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.INTERNAL_SERVER_ERROR:
                raise
        time.sleep(pause)
    return call()


def _too_large(most: int, where: str = "") -> str:
    return f"it is larger than the {most / 2**20:.0f} MiB that an answer may have here{where}"
