"""How a client's models of several strategies compare on samples that none was trained on.

Each sample's score is stored in the client's context. Only counts leave it: on how many samples one
model is right and another is wrong.
"""

import math

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord
from numpy.typing import NDArray

from fl_core.messages import protocol

_SCORES, _ABOUT = "candidates", "candidates-about"


def compare_candidate(
    context: Context,
    label: str,
    draw: list[int],
    scores: NDArray[np.uint8] | NDArray[np.float32],
    loss: float,
) -> MetricRecord:
    """Compare a strategy's model with those before it, and store its scores for those to come.

    `label` is the strategy, `draw` the seed and the fold of its validation samples; the scores of
    one draw are stored. `scores`, (n,), and `loss` are as `clients.training.train.each_score`; a
    loss of NaN is not sent. The result has `num-examples`, n; `score`, the mean; `loss`; and, by
    the label of every other strategy with scores of these samples, two numbers: on how many only
    this one is right, and only the other; or, of numbers, the mean and the variance (n − 1) of how
    much farther off it is.
    """
    state = context.state
    about = state.config_records.get(_ABOUT, ConfigRecord())
    stored = state.array_records[_SCORES] if about.get(protocol.SEED) == draw else ArrayRecord()
    found = MetricRecord({protocol.NUM_EXAMPLES: len(scores), protocol.SCORE: float(scores.mean())})
    if not math.isnan(loss):
        found[protocol.LOSS] = loss
    for other, array in stored.items():
        theirs = array.numpy()
        if other != label and (theirs.dtype, theirs.shape) == (scores.dtype, scores.shape):
            found[other] = list(_compared(scores, theirs))
    state[_SCORES] = ArrayRecord({**stored, label: Array(scores)})
    state[_ABOUT] = ConfigRecord({protocol.SEED: draw})
    return found


def _compared(
    ours: NDArray[np.uint8] | NDArray[np.float32], theirs: NDArray[np.uint8] | NDArray[np.float32]
) -> tuple[float, float]:
    if ours.dtype == np.uint8:
        return float((ours > theirs).sum()), float((ours < theirs).sum())
    farther = theirs.astype(np.float64) - ours
    return float(farther.mean()), float(farther.var(ddof=1)) if len(ours) > 1 else 0.0
