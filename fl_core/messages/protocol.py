"""The protocol of clients and server: message types, records, and their entries."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from numpy.typing import NDArray

from fl_core.text import one_line

NDArrays = dict[str, NDArray[np.generic]]
"""A model on the server: parameter and buffer names to arrays, in the model's order."""

# Message types. Flower routes `query.NAME` to the function registered with `@app.query("NAME")`.
DESCRIBE = "describe"
SPECTRUM = "spectrum"
RELEVANCE = "relevance"
SIGNATURE = "signature"
MOMENTS = "moments"
SAVE_MODEL = "save_model"
DEPLOY_MODEL = "deploy_model"
TESTED_MODEL = "tested_model"
SAVE_STATE = "save_state"
RESTORE_STATE = "restore_state"
PRE_ROUND = "pre-round"  # the group of messages before the first round
LOSSES = "losses"
PUBLIC_KEYS = "public_keys"
SHARE_KEYS = "share_keys"
UNMASK = "unmask"
TRAIN = MessageType.TRAIN
EVALUATE = MessageType.EVALUATE


def query(action: str) -> str:
    """Return the message type that reaches the client's query handler `action`."""
    return f"{MessageType.QUERY}.{action}"


# Records of a message.
ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"
OTHER_TEST = "other-test"
"""Metrics of a second test, only in simulations."""
VALIDATION = "validation"
"""Scores of a client's model on its validation samples, and compared to other strategies."""
BESIDE = "beside-the-model"
"""What an objective lets travel beside a model: in its record, as the arrays of such a layer."""
PRIVATE = "private"
"""The initial private layers, for a client without any."""

# Entries of a record.
CLIENT_INDEX = "client-index"
NUM_CLIENTS = "num-clients"
NUM_EXAMPLES = "num-examples"
EIGENVECTORS = "eigenvectors"
EIGENVALUES = "eigenvalues"
NUM_COLUMNS = "num-columns"
RELEVANCES = "relevances"
SERVER_ROUND = "server-round"
SEED = "seed"
NUM_EIGENVECTORS = "num-eigenvectors"
WITH_EIGENVALUES = "with-eigenvalues"
COMPARED_THERE = "compared-there"  # by the server, which sends no other query
RAW_SAMPLES = "raw-samples"  # whether a spectrum is of pixels, and not of features
LOSS = "loss"
ACCURACY = "accuracy"
MACRO_F1 = "macro-f1"
BALANCED_ACCURACY = "balanced-accuracy"
RMSE = "rmse"
MAE = "mae"
R2 = "r2"
USER_METRIC = "user-metric"
RELEVANCE_FORMULA = "relevance-formula"
CENTROIDS = "centroids"
NUM_CENTROIDS = "num-centroids"
NUM_COMPONENTS = "num-components"
MAPPED_CENTROIDS = "mapped-centroids"
ENCODER_EPOCHS = "encoder-epochs"
DATA_SHIFT = "data-shift"
STORED_MODEL = "stored-model"
IMAGE_SKETCH = "image-sketch"
NAME = "name"
STRATEGY = "strategy"
CANDIDATE = "candidate"
TUNED = "tuned"
"""Options of training that differ from the run's configuration, as JSON."""
VALIDATION_FOLD = "validation-fold"
VERDICT = "verdict"
SCORE = "score"
CLUSTER = "cluster"
STORED = "stored"
KEYS = "keys"
SHARES = "shares"
DIGESTS = "digests"
PEERS = "peers"
WEIGHTED = "weighted"
MASKED = "masked"
SURVIVORS = "survivors"
DROPPED = "dropped"
OBJECTIVE = "objective"
PRIVATE_LAYERS = "private-layers"
TRAINING = "training"
"""The training of a message: the state of a client is valid for that one only."""


SKETCH_SIZE = 66
"""Numbers in an image sketch: see `clients.signatures.shift.image_sketch`."""


def to_arrays(record: ArrayRecord) -> NDArrays:
    """Return the arrays of `record` under their names (a model, seen by the server)."""
    return {name: array.numpy() for name, array in record.items()}


def to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return `arrays` as Flower's ArrayRecord, in their order."""
    return ArrayRecord({name: Array(np.asarray(a, order="C")) for name, a in arrays.items()})


def with_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> RecordDict:
    """Return a message's content with only `arrays`."""
    return RecordDict({ARRAYS: to_record(arrays)})


def array_in(content: RecordDict, name: str) -> NDArray[Any]:
    """Return an array of an answer; a ValueError says that it is missing or unreadable."""
    record = content.array_records.get(ARRAYS, ArrayRecord())
    if name not in record:
        raise ValueError(f"its answer has no {name}")
    try:
        return record[name].numpy()
    except Exception as error:  # bytes from the network may be anything
        raise ValueError(f"its {name} cannot be read: {one_line(str(error))}") from error


def pack_models(models: Sequence[ArrayRecord]) -> ArrayRecord:
    """Put the models of cluster 0, 1, … into one record, under `cluster/parameter` names.

    Flower's `Strategy.start` passes one record from round to round.
    """
    return ArrayRecord(
        {f"{c}/{name}": array for c, model in enumerate(models) for name, array in model.items()}
    )


def unpack_models(packed: ArrayRecord) -> list[ArrayRecord]:
    """Return the record of each cluster from that of `pack_models`."""
    models: dict[int, dict[str, Array]] = {}
    for name, array in packed.items():
        cluster, _, parameter = name.partition("/")
        models.setdefault(int(cluster), {})[parameter] = array
    return [ArrayRecord(models[c]) for c in sorted(models)]


def metrics_of(content: RecordDict) -> MetricRecord:
    """Return a message's metrics; empty if it has none."""
    return content.metric_records.get(METRICS, MetricRecord())


def number(record: MetricRecord, key: str) -> float | None:
    """Return the finite number at `key`, or None."""
    value = record.get(key)
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def numbers(content: RecordDict, key: str) -> list[float]:
    """Return the list of numbers at `key` of a message's metrics, or an empty one."""
    values = metrics_of(content).get(key)
    return [float(value) for value in values] if isinstance(values, list) else []


def setting(message: Message, key: str, default: int | None = None) -> int:
    """Return the whole number at `key` of a message's config record, or else the default."""
    config = message.content.config_records[CONFIG]
    return int(str(config[key] if default is None else config.get(key, default)))


def entropy(message: Message) -> list[int]:
    """Return a message's seed and round, the seed of a client's random numbers."""
    return [setting(message, key, 0) for key in (SEED, SERVER_ROUND)]


def payload_bytes(content: RecordDict) -> int:
    """Return the bytes of arrays and metrics in a message's content, without headers.

    A second test, which only simulations have, does not count.
    """
    return sum(
        sum(len(array.data) for array in record.values())
        if isinstance(record, ArrayRecord)
        else record.count_bytes()
        for name, record in content.items()
        if isinstance(record, ArrayRecord | MetricRecord) and name != OTHER_TEST
    )


def as_type(kind: np.dtype[Any], values: NDArray[np.float64]) -> NDArray[np.generic]:
    """Convert aggregated values to an array's type; integers and booleans are rounded."""
    return (np.rint(values) if kind.kind in "biu" else values).astype(kind)


def is_variance(name: str) -> bool:
    """Return whether an array has the variances of a normalising layer, which are not negative."""
    return name.endswith("running_var")


def max_answer_bytes(largest_message: int) -> int:
    """Return the most bytes of an answer, a model or, at first, 16 MiB of eigenvectors."""
    return 16 * 2**20 + 2 * largest_message
