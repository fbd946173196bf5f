"""A SuperLink without processes: what is pushed to it, and what is pulled from it."""

from types import SimpleNamespace

from flwr.app import Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)

from tests.local_grid import LocalGrid
from tests.toy_app import toy_app


class Post(LocalGrid):
    """Pushes and pulls as Flower's grid does; `answers` maps a node to what is pulled for it."""

    def __init__(self, answers, push=lambda messages: None):
        super().__init__(toy_app(), 0)
        self.answers = answers
        self.push = push
        self.pushed = {}
        self.objects = {}
        self.confirmed = []
        self.pulled = 0
        self._runtime_client = self
        self.run_id = 7

    @property
    def run(self):
        return SimpleNamespace(run_id=self.run_id)

    def push_messages(self, messages):
        self.push(messages)
        numbers = []
        for message in messages:
            number = message.object_id
            message.metadata.__dict__["_message_id"] = number
            self.pushed[number] = message
            numbers.append(number)
        return numbers

    def PullMessages(self, request):  # noqa: N802
        (number,) = request.message_ids
        message = self.pushed[number]
        protos, trees = [], []
        for reply in self.answers[message.metadata.dst_node_id](message):
            with no_object_id_recompute():
                nested = get_all_nested_objects(reply)
                self.objects |= {name: one.deflate() for name, one in nested.items()}
                proto = message_to_proto(reply)
                proto.metadata.message_id = reply.object_id
                protos.append(proto)
                trees.append(get_object_tree(reply))
        return PullAppMessagesResponse(messages_list=protos, message_object_trees=trees)

    def PullObject(self, request):  # noqa: N802
        content = self.objects[request.object_id]
        self.pulled += len(content)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):  # noqa: N802
        self.confirmed.append(request.message_object_id)


def reply_of(message, content=None, source=None, target=1):
    """Return what the node that was asked, or `source`, replies."""
    reply = Message(content or RecordDict(), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = source or message.metadata.dst_node_id
    reply.metadata.__dict__["_dst_node_id"] = target
    return reply


def good(message):
    return [reply_of(message)]
