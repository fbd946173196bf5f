"""A round's messages: each client is sent the model that it holds, and its reply is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, Message, RecordDict

from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays
from fl_core.text import one_line
from strategies.rounds.conversation import Traffic
from strategies.rounds.replies import Reading, read_answers, sort_replies
from strategies.rounds.training import Training

logger = logging.getLogger(__name__)

LEFT_OUT = "%s failed in round %d and is left out of it: %s"
UNTESTED = "%s could not be tested in round %d: %s"


def first_model(record: ArrayRecord) -> NDArrays:
    """Return the arrays of the model that a training starts from.

    Raises
    ------
    ValueError
        If a parameter is complex: means, norms and directions here are of real numbers.
    """
    model = protocol.to_arrays(record)
    for name, array in model.items():
        if array.dtype.kind == "c":
            raise ValueError(
                f"the model's {name} is {array.dtype}, but parameters must be real numbers: store "
                "its real and its imaginary part as two parameters."
            )
    return model


@dataclass(eq=False)
class Exchange:
    """One message to each of some clients, with its own model, and what comes back.

    Attributes
    ----------
    training : Training
        Whose clients are sent its models.
    clients : iterable of int
        Who is sent one.
    traffic : Traffic
        Where bytes are counted.
    failed : str
        How a log names a client that failed, see `warn`.
    asked : dict of int
        From node id to client index.
    why : str
        What went wrong with the first client that failed.
    sent : dict of dicts
        From client index to its model.
    """

    training: Training
    clients: InitVar[Iterable[int]]
    traffic: Traffic
    failed: str = LEFT_OUT
    why: str = "nobody answered"
    asked: dict[int, int] = field(init=False)
    sent: dict[int, NDArrays] = field(init=False)

    def __post_init__(self, clients: Iterable[int]) -> None:
        nodes, numbers = self.training.roster.nodes, self.training.model_of_client
        self.asked = {nodes[client]: client for client in clients}
        self.sent = {c: self.training.models[numbers[c]] for c in self.asked.values()}

    def messages(
        self,
        message_type: str,
        config: Mapping[str, ConfigRecordValues],
        timeout: float,
        told: Callable[[int], Mapping[str, ConfigRecordValues]] = lambda client: {},
    ) -> list[Message]:
        """Return each client's message, which is no longer delivered after `timeout` seconds.

        Its config record has the entries of `config`, and those that `told` returns for the client
        alone. One that is told which model it has kept (IFCA) is sent none. Who trained on the most
        samples comes first: in a simulation, no long training is then left over at the end, when
        the other workers have nothing to do.
        """
        training, numbers = self.training, self.training.model_of_client
        messages = []
        known = training.num_examples
        for node, client in sorted(self.asked.items(), key=lambda item: -known.get(item[1], 0)):
            # One config record a message: what is shared between messages is shared state.
            own_config = {**config, protocol.SERVER_ROUND: training.round, **told(client)}
            content = RecordDict({**training.private_of(client)})
            if protocol.KEPT_MODEL not in own_config:
                content[protocol.ARRAYS] = training.records[numbers[client]]
            content[protocol.CONFIG] = ConfigRecord(own_config)
            messages.append(
                Message(
                    content,
                    dst_node_id=node,
                    message_type=message_type,
                    group_id=str(training.round),
                    ttl=timeout,
                )
            )
        self.traffic.down += sum(protocol.payload_bytes(m.content) for m in messages)
        return messages

    def read(
        self, replies: Iterable[Message], read: Callable[[int, RecordDict], Reading]
    ) -> dict[int, Reading]:
        """Read each client's reply by `read`; clients at which it fails are named."""
        answers, failures = sort_replies(self.asked, replies)
        self.traffic.up += sum(protocol.payload_bytes(answer) for answer in answers.values())
        readings = read_answers(answers, failures, read)
        if failures:
            self.why = one_line(failures[min(failures)])
        for client, reason in failures.items():
            warn(self.training, client, reason, self.failed)
        return readings


def warn(training: Training, client: int, reason: str, failed: str = LEFT_OUT) -> None:
    """Note that a client failed in the present round: `failed` takes its name, round and why."""
    logger.warning(failed, training.roster.name_of(client), training.round, one_line(reason))
