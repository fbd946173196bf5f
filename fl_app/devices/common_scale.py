"""A common scale of all devices' samples (`standardise=all`), from each device's statistics."""

import logging
from dataclasses import replace

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from fl_core.agreement.agreement import Agreement
from fl_core.data.samples import check_no_pixels
from fl_core.data.scaling import ColumnStatistics, Scaling, constant_notes
from fl_core.data.settings import ALL_SITES
from fl_core.messages import protocol
from strategies import Conversation

logger = logging.getLogger(__name__)

_MOST_SAMPLES = 10**12


def encode_statistics(found: ColumnStatistics) -> RecordDict:
    """Encode the statistics of a device's columns as its answer."""
    rows = np.stack([found.mean, found.deviation, found.is_flag.astype(np.float64)])
    return RecordDict(
        {
            protocol.ARRAYS: ArrayRecord({protocol.MOMENTS: Array(rows)}),
            protocol.METRICS: MetricRecord({protocol.NUM_EXAMPLES: found.num_rows}),
        }
    )


def decode_statistics(answer: RecordDict, num_columns: int) -> ColumnStatistics:
    """Decode and check an answer of `encode_statistics`."""
    count = protocol.metrics_of(answer).get(protocol.NUM_EXAMPLES)
    rows = protocol.array_in(answer, protocol.MOMENTS)
    if not (isinstance(count, int) and 1 <= count <= _MOST_SAMPLES):
        raise ValueError(f"the moments are of {count!r:.40} samples")
    if rows.shape != (3, num_columns) or rows.dtype != np.float64:
        raise ValueError(
            f"the moments are {rows.dtype} of shape {rows.shape}, not float64 of {(3, num_columns)}"
        )
    mean, deviation, is_flag = rows
    largest = np.finfo(np.float32).max  # the type of samples
    are_finite = (np.abs(rows) <= largest).all() and (deviation >= 0).all()  # false of NaN, too
    if not are_finite or not np.isin(is_flag, (0, 1)).all():
        raise ValueError("the moments are not those of finite numbers")
    return ColumnStatistics(count, mean, deviation, is_flag == 1)


def add_common_scale(agreement: Agreement, conversation: Conversation) -> Agreement:
    """Query all devices' statistics, and add their scale to an agreement; exclude invalid ones."""
    check_no_pixels("devices", ALL_SITES, agreement.is_float)
    num_columns = agreement.sample_shape[0]
    statistics = conversation.query(
        protocol.MOMENTS,
        lambda answer: decode_statistics(answer, num_columns + agreement.is_regression),
        options={**agreement.as_config()},
    )
    found = ColumnStatistics.merged(list(statistics.values()))
    for note in constant_notes([found], num_columns, agreement.column_names, ALL_SITES):
        logger.warning(note)
    scaling = Scaling.fit(found, is_regression=agreement.is_regression)
    return replace(agreement, scaling=scaling)
