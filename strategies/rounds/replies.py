"""Check what clients send before it is used: it may be late, broken or harmful."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fl_core.flower.basics import ErrorCode
from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays, is_variance
from fl_core.metrics import Metrics
from fl_core.models.layers import is_within, split, without_layer
from fl_core.objectives.objective import LocalObjective
from fl_core.text import one_line
from strategies.rounds.round_state import Update
from strategies.rounds.updates import RUNNING_STATISTICS

_MOST_GROWTH = 1e3  # of an array's largest number, or of 1 if that is more, in all of a training
_MOST_EXAMPLES = 1e12  # more is no number of samples
_MOST_STATISTIC = 1e12
_ROUNDING = 1e-3  # of a sum of shares
_LARGEST = float(np.finfo(np.float32).max)  # of what samples can be
_MOST_COMPARED, _LONGEST_LABEL = 500, 500
_LARGEST_DISTANCE = 1e30  # between two models: intervals of means are many times as wide
_LEAST_EIGENVALUE = 1e-30  # of the largest one
DIMENSIONS = "its features have {} dimensions"
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
    """Return what failed, in a few words: of a traceback, as Ray sends it, the last sentence."""
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


def read_updates(
    client: int,
    content: RecordDict,
    received: Sequence[NDArrays],
    initial: NDArrays,
    local: LocalObjective,
) -> list[Update]:
    """Return the updates of a client that was sent the models of all clusters, one for each."""
    record = content.array_records.get(protocol.ARRAYS)
    if record is None or record.keys() != {
        f"{number}/{name}" for number, model in enumerate(received) for name in model
    }:
        raise ValueError("the parameters of its models are not those it was sent")
    found = []
    for cluster, (model, sent) in enumerate(
        zip(protocol.unpack_models(record), received, strict=True)
    ):
        alone = RecordDict({**content, protocol.ARRAYS: model})
        update = read_update(client, cluster, alone, sent, initial)
        share = float(np.asarray(update.arrays[f"{protocol.BESIDE}.share"], float).sum())
        found.append(replace(update, share=share))
    if min(one.share for one in found) < 0 or abs(sum(one.share for one in found) - 1) > _ROUNDING:
        raise ValueError(
            f"its shares of clusters are {[one.share for one in found]}, not a mixture"
        )
    for one in found:
        local.check_beside(without_layer(split(one.arrays, [protocol.BESIDE])[1]))
    return found


Tests = tuple[dict[str, float], dict[str, float], dict[str, list[float]]]


def read_tests(content: RecordDict, metrics: Metrics) -> Tests:
    """Return a client's scores, those of a second test, and its comparisons, if it sent any.

    Scores are by name; a loss that is not finite is left out. A ValueError says that a score is
    missing or impossible. For comparisons, see `RoundReport.validated`.
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
    """Return whether two models can have compared so on `count` samples (`paired_comparison`)."""
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


def read_eigenvectors(content: RecordDict, k: int, dimension: int | None) -> NDArray[np.float32]:
    """Return a client's eigenvectors, or raise a ValueError."""
    vectors = protocol.array_in(content, protocol.EIGENVECTORS)
    if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= k:
        raise ValueError(f"its eigenvectors have shape {vectors.shape}, not (d, 1 to {k})")
    if vectors.dtype.kind != "f" or not np.isfinite(vectors).all():
        raise ValueError("its eigenvectors are not all finite numbers")
    if dimension is not None and len(vectors) != dimension:
        raise ValueError(f"{DIMENSIONS.format(len(vectors))}, the others' {dimension}")
    products = vectors.astype(np.float64).T @ vectors
    if not np.allclose(products, np.eye(len(products)), atol=1e-3):
        raise ValueError("its eigenvectors are not orthonormal")
    return np.ascontiguousarray(vectors, np.float32)


def read_eigenvalues(content: RecordDict) -> NDArray[np.float64]:
    """Return a client's eigenvalues, shape (k_j,), or raise a ValueError."""
    values = protocol.array_in(content, protocol.EIGENVALUES)
    count = protocol.array_in(content, protocol.EIGENVECTORS).shape[1]
    if values.shape != (count,) or values.dtype not in (np.float32, np.float64):
        found = f"{values.dtype} of shape {values.shape}"
        raise ValueError(f"its eigenvalues are {found}, not float32 of shape ({count},)")
    # What is smaller than float32 can tell from nothing is left out by clients.
    within = np.isfinite(values) & (values > _LEAST_EIGENVALUE * values.max())
    if not within.all() or (np.diff(values) > 0).any():
        raise ValueError("its eigenvalues are not finite, positive and descending")
    return values.astype(np.float64)


def read_relevances(content: RecordDict, count: int) -> list[float]:
    """Return how relevant a client finds `count` others, or raise a ValueError."""
    scores = protocol.numbers(content, protocol.RELEVANCES)
    if len(scores) != count:
        raise ValueError(f"its answer does not hold {count} relevances")
    if not all(0 <= score <= 1 + 1e-6 for score in scores):  # NaN fails as well
        raise ValueError("its relevances are not all numbers in [0, 1]")
    return scores
