import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fl_core.messages.protocol import (
    pack_models,
    payload_bytes,
    to_arrays,
    to_record,
    unpack_models,
)


def test_models_survive_packing_in_cluster_order_with_names_and_types():
    models = [
        to_record({"b.weight": np.full((2, 3), c, np.float32), "a": np.array(c, np.int64)})
        for c in range(12)  # more than ten: "10" sorts before "2" as text
    ]
    packed = pack_models(models)
    assert list(packed)[:2] == ["0/b.weight", "0/a"]
    for cluster, model in enumerate(unpack_models(packed)):
        arrays = to_arrays(model)
        assert list(arrays) == ["b.weight", "a"]
        assert arrays["b.weight"].tolist() == [[cluster] * 3] * 2
        assert arrays["a"].dtype == np.int64
        assert arrays["a"].shape == ()


def test_payload_counts_arrays_and_metrics():
    array = np.zeros(100, np.float32)
    alone = payload_bytes(RecordDict({"arrays": ArrayRecord([array])}))
    assert 400 < alone < 600
    content = RecordDict(
        {
            "arrays": ArrayRecord([array]),
            "metrics": MetricRecord({"loss": 1.0}),
            "config": ConfigRecord({"empty": ""}),
            "other-test": MetricRecord({"loss": 1.0}),
        }
    )
    assert payload_bytes(content) == alone + 8 + len("loss")
