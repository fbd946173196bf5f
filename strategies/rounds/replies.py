"""Check what clients send before it is used: it may be late, broken or harmful."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fl_core.flower.basics import ErrorCode
from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays, is_variance
from fl_core.metrics import Metrics
from fl_core.models.layers import is_within
from fl_core.text import one_line
from strategies.rounds.round_state import Update
from strategies.rounds.updates import RUNNING_STATISTICS

_MOST_GROWTH = 1e3  # of an array's largest number, or of 1 if that is more, in all of a training
_MOST_EXAMPLES = 1e12  # more is no number of samples
_MOST_STATISTIC = 1e12
_LARGEST = float(np.finfo(np.float32).max)  # of what samples can be
_MOST_COMPARED, _LONGEST_LABEL = 500, 500
_LARGEST_DISTANCE = 1e30  # between two models: intervals of means are many times as wide
NO_ANSWER = "no answer in time"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK = re.compile(r'^  File ".*", line \d+', re.MULTILINE)
_RAISED = re.compile(r"Exception \w+ occurred\. Message: ")  # before what a client raised
# Flower says so, too, if it looks first: messages expire with our deadlines.
_REASONS = {
    ErrorCode.MESSAGE_UNAVAILABLE: NO_ANSWER,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: NO_ANSWER,
    ErrorCode.NODE_UNAVAILABLE: "it is no longer connected",
}


def error_text(message: Message) -> str:
    """Return what failed, in a few words.

    Of a traceback, as Ray sends it with a simulated client's exception, that is its last sentence.
    A text of one word is preceded by the exception's name.
    """
    code = message.error.code
    reason = _REASONS.get(code) or message.error.reason or f"error code {code}"
    raised, text = "", reason
    if wrapped := re.fullmatch(r"<class '(?:[^']*\.)?([^'.]*)'>:<'(.*)'>", reason, re.DOTALL):
        raised, text = wrapped.groups()
    text = _COLOUR.sub("", text).strip()
    if _TRACEBACK.search(text):
        text = _RAISED.split(text)[-1] if _RAISED.search(text) else text.rpartition("\n")[2]
    if raised and len(text.split()) < 2:  # as Python says which key is missing: the key, no more
        text = f"{raised}: {text}"
    return one_line(text)


def read_update(
    client: int, cluster: int, content: RecordDict, received: NDArrays, initial: NDArrays
) -> Update:
    """Return the update of a client that was sent the model `received`, or raise a ValueError."""
    record = content.array_records.get(protocol.ARRAYS)
    metrics = protocol.metrics_of(content)
    if record is None or record.keys() != received.keys():
        raise ValueError("its model's parameters are not those it was sent")
    examples = protocol.number(metrics, protocol.NUM_EXAMPLES)
    if examples is None or not 0 < examples <= _MOST_EXAMPLES:
        raise ValueError(f"its {protocol.NUM_EXAMPLES} is {metrics.get(protocol.NUM_EXAMPLES)}")
    arrays = {}
    for name, sent in received.items():
        array = protocol.array_in(content, name)
        if array.dtype != sent.dtype or array.shape != sent.shape:
            raise ValueError(
                f"its {name} is {array.dtype} of shape {array.shape}, not {sent.dtype} of "
                f"{sent.shape}"
            )
        if problem := _implausible(name, array, initial[name]):
            raise ValueError(f"its {name} holds {problem}")
        arrays[name] = array
    shift = protocol.number(metrics, protocol.DATA_SHIFT) or 0.0
    return Update(client, cluster, arrays, examples, received, shift, _loss(metrics))


Tests = tuple[dict[str, float], dict[str, float], dict[str, list[float]]]


def read_tests(content: RecordDict, metrics: Metrics) -> Tests:
    """Return a client's scores, those of a second test, and its comparisons, if it sent any.

    Scores are the main metric and, if sent, the others, the loss and the number of samples, by
    their names in the message; a loss that is not finite is left out. A ValueError says that a
    score is missing or impossible. For comparisons, see `RoundReport.validated`.
    """
    other = content.metric_records.get(protocol.OTHER_TEST)
    first = _read_test(protocol.metrics_of(content), metrics)
    compared = content.metric_records.get(protocol.VALIDATION)
    return (
        first,
        {} if other is None else _read_test(other, metrics),
        {} if compared is None else _read_comparisons(compared, metrics),
    )


def _read_comparisons(sent: MetricRecord, metrics: Metrics) -> dict[str, list[float]]:
    """Return the number of samples, this model's score and loss; and a pair per other model."""
    count, score = (protocol.number(sent, key) for key in (protocol.NUM_EXAMPLES, protocol.SCORE))
    main = metrics.main
    is_count = count is not None and count.is_integer() and 0 < count <= _MOST_EXAMPLES
    high = min(main.high, _LARGEST)
    if count is None or score is None or not (is_count and main.low <= score <= high):
        raise ValueError(
            f"it compared models on {count} samples, with the score {score}, which is impossible"
        )
    loss = protocol.number(sent, protocol.LOSS)
    found = {"": [count, score, math.inf if loss is None else loss]}
    labels = sent.keys() - {protocol.NUM_EXAMPLES, protocol.SCORE, protocol.LOSS}
    if len(labels) > _MOST_COMPARED or any(len(label) > _LONGEST_LABEL for label in labels):
        raise ValueError(f"it compared {len(labels)} models, or some with a name that is too long")
    for label in labels:
        pair = sent[label]
        named = label != ""  # without a name is what it found itself
        if not (named and isinstance(pair, list) and _can_be(pair, count, main.lower_is_better)):
            raise ValueError(
                f'its comparison with "{one_line(label)}" is {pair}, which is impossible'
            )
        found[label] = [float(pair[0]), float(pair[1])]
    return found


def _can_be(pair: Sequence[float], count: float, of_numbers: bool) -> bool:
    """Return whether two models can have compared so on `count` samples.

    For classes, a pair is the number of samples on which only the one and only the other is right.
    For numbers, it is the mean and the variance of the difference between their errors.
    """
    if len(pair) != 2 or not (np.abs(pair) <= _LARGEST_DISTANCE).all():
        return False
    first, second = map(float, pair)
    if of_numbers:
        return second >= 0
    return min(pair) >= 0 and first.is_integer() and second.is_integer() and sum(pair) <= count


def _read_test(sent: MetricRecord, metrics: Metrics) -> dict[str, float]:
    found = {}
    for metric in metrics.all:
        if metric.name not in sent and metric is not metrics.main:
            continue
        value = protocol.number(sent, metric.name)
        if value is None or not metric.low <= value <= metric.high or abs(value) > _LARGEST:
            said = sent.get(metric.name)
            raise ValueError(f"its {metric.name} is {said}, not a number {metric.bounds}")
        found[metric.name] = value
    others = {protocol.LOSS: _loss(sent), protocol.NUM_EXAMPLES: _count(sent)}
    return found | {name: value for name, value in others.items() if value is not None}


def _count(sent: MetricRecord) -> float | None:
    count = protocol.number(sent, protocol.NUM_EXAMPLES)
    return count if count is not None and 0 < count <= _MOST_EXAMPLES else None


def _loss(sent: MetricRecord) -> float | None:
    """Return the loss that a client sent; None if it cannot be averaged."""
    loss = protocol.number(sent, protocol.LOSS)
    return None if loss is None or abs(loss) > _LARGEST else loss


def _implausible(name: str, array: NDArray[Any], initial: NDArray[Any]) -> str | None:
    """Return which values of a trained array would corrupt all later means, if it has any.

    Finite is not enough: means of numbers near float32's largest make later answers NaN. The change
    since the first round is bounded, not one round's: small steps would get there, too.
    """
    if array.dtype.kind != "f":
        return None
    largest = np.abs(array).max(initial=0)
    if not np.isfinite(largest):
        return "NaN or infinity: learning-rate may be too high"
    if is_variance(name) and array.min(initial=0) < 0:  # one makes a mean's root NaN
        return "negative variances"
    # Of samples of any scale, or beside the model, where a start at 0 says nothing of the scale.
    if name.endswith(RUNNING_STATISTICS) or is_within(name, [protocol.BESIDE]):
        return f"{largest:.3g}, which is implausible" if largest > _MOST_STATISTIC else None
    # What it began with is looked at only where it can matter: it is the same for all.
    if largest > _MOST_GROWTH and largest > _MOST_GROWTH * np.abs(initial).max():
        return (
            f"{largest:.3g}, far more than at the start of training: learning-rate may be far too "
            "high"
        )
    return None
