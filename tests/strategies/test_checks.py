"""What a run configuration may not say, a strategy refuses in any Flower app, too."""

import numpy as np
import pytest

from fl_core.objectives.scaffold import Scaffold
from strategies import (
    ClusteredStrategy,
    FirstUpdateClustering,
    GivenClusters,
    GraphMean,
    MultiKrum,
    make_strategy,
)
from tests.toy_app import ENCODER, draw_model


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: make_strategy("fedhc", 3, reference="intial"),
            'update-reference is "intial", but it must be one of initial, received. Did you mean '
            "initial?",
        ),
        (
            lambda: make_strategy("pacfl", "auto"),
            'num-clusters is "auto", but it must be a whole number of at least 1, or "elbow" or '
            '"silhouette".',
        ),
        (
            lambda: make_strategy("flt", ENCODER, 2, max_changed="never"),
            'max-changed is "never", but it must be a whole number of at least 0, or None.',
        ),
        (
            lambda: make_strategy("fedsem", None),
            "num-clusters is None, but it must be a whole number of at least 1.",
        ),
        (
            lambda: ClusteredStrategy(GivenClusters({0: 0}), GraphMean(), local=Scaffold()),
            "the objective scaffold needs means of arrays beside the model, and the aggregation "
            "graph makes a model for each client: choose mean, lps-gps, median or trimmed-mean.",
        ),
        (
            lambda: ClusteredStrategy(GivenClusters({0: 0}), MultiKrum(), local=Scaffold()),
            "the objective scaffold needs means of arrays beside the model, and the aggregation "
            "multi-krum makes no mean of all clients: choose mean, lps-gps, median or "
            "trimmed-mean.",
        ),
        (
            lambda: ClusteredStrategy(FirstUpdateClustering(2), local=Scaffold()),
            "the objective scaffold needs means of arrays beside the model, which the clustering "
            "first-update loses when clients join late: choose one that does not wait for the "
            "first training, such as spectral or update.",
        ),
        (
            lambda: make_strategy("rcc-pfl", relevance="by-strategy"),
            'relevance is "by-strategy", which has a meaning in a run configuration alone: choose '
            "another value.",
        ),
        (
            lambda: make_strategy("single", fraction_train=-1.0),
            "fraction-train is -1.0, but it must be a number above 0 and at most 1.",
        ),
    ],
)
def test_an_option_that_is_not_allowed_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError) as refused:
        make()
    assert str(refused.value) == sentence


def test_what_means_none_and_numbers_of_numpy_are_allowed():
    make_strategy("flt", ENCODER, "silhouette", max_changed=None)
    make_strategy("rcc-pfl", "auto")
    make_strategy("mt-hfl", np.int64(2), common_layers=("w",), local_rounds=np.int64(2))
    make_strategy("ifca", np.int64(2), draw_model, stop_after=np.int64(1))
    make_strategy("single", fraction_train=np.float32(0.5))
    make_strategy("fedper", private_layers="fc1, fc2")


def test_secure_sums_are_not_made_again_by_a_resumption():
    """The mean of five clients, and of four of them, show the fifth one's model."""
    with pytest.raises(ValueError, match=r"^secure-aggregation is true, and a round that is tr"):
        make_strategy("single", secure_aggregation=True).resume({})
    make_strategy("single").resume({})
