"""Clients that come late and clients whose data change, on real images."""

import numpy as np
import pytest

from tests.app_runs import LARGE_STEPS, of_strategy, per_round, run, untrained_encoder, whole_space
from tests.samples import sampled

OPTIONS = {"clients": 12, "num_tasks": 3, **LARGE_STEPS}
DRIFT = {"drift_clients": 4, "drift_round": 3}
LATE = {"newcomers": 3, "newcomer_round": 3}


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    monkeypatch.setattr("strategies.clusterings.flt.embed_signatures", whole_space)
    return untrained_encoder(tmp_path)


def event(summary, name, who):
    """Return the mean accuracy of newcomers or drifters by round."""
    found = of_strategy(summary, name)[f"{who}-accuracy-per-round"]
    return {int(number): accuracy for number, accuracy in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("more", sampled(["", "flt-graph,ifca-pfl"], 2))
def test_newcomers_are_placed_with_those_of_their_task(tmp_path, encoder, more):
    names = ("flt", "rcc-pfl", "local", *filter(None, more.split(",")))
    options = OPTIONS | LATE | encoder | {"num_server_rounds": 4}
    summary = run(tmp_path / "out", strategy=",".join(names), **options)
    for name in names:
        one = of_strategy(summary, name)
        assert len(one["newcomers"]) == 3
        assert min(one["clusters"]) >= 0
        assert one["failures"] == []
        assert list(event(summary, name, "newcomers")) == [3, 4]
    for name in {"flt", "flt-graph", "rcc-pfl"} & set(names):
        assert per_round(tmp_path / "out", name, "ari") == [1] * 4
        assert min(event(summary, name, "newcomers").values()) > 0.9
    assert of_strategy(summary, "local")["clusters"] != list(range(12))  # newcomers' come last
    assert len(set(of_strategy(summary, "local")["clusters"])) == 12


@pytest.mark.slow
@pytest.mark.faults
def test_flt_asks_again_when_data_change_and_so_recovers(tmp_path, encoder):
    options = OPTIONS | DRIFT | encoder | {"num_server_rounds": 5}
    summary = run(tmp_path / "out", strategy="flt,flt-graph,rcc-pfl,optimum", **options)
    for name in ("flt", "flt-graph"):
        ari = per_round(tmp_path / "out", name, "ari")
        assert ari[:2] + ari[3:] == [1, 1, 1, 1]  # asked in round 4, since told so in round 3
        assert ari[2] < 0.5
        accuracy = event(summary, name, "drifters")
        assert min(accuracy[r] for r in (1, 2, 4, 5)) > 0.9
        assert accuracy[3] < 0.6
    assert per_round(tmp_path / "out", "optimum", "ari") == [1] * 5
    assert min(event(summary, "optimum", "drifters").values()) > 0.9
    assert per_round(tmp_path / "out", "rcc-pfl", "ari")[2:] == pytest.approx([ari[2]] * 3)
    assert event(summary, "rcc-pfl", "drifters")[5] < 0.8
    drifted = of_strategy(summary, "flt")
    assert len(drifted["drifters"]) == 4
    assert drifted["ari"] == 1
    assert drifted["tasks"] == of_strategy(summary, "optimum")["tasks"]


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "recovers"),
    [
        ({"max_changed": "never"}, False),
        ({"max_changed": 4}, False),
        ({"max_changed": 3}, True),
    ],
)
def test_flt_asks_again_only_when_its_rules_say_so(tmp_path, encoder, rule, recovers):
    """Four clients drift; λ = 4 is not exceeded."""
    options = OPTIONS | DRIFT | encoder | rule | {"num_server_rounds": 4, "strategy": "flt"}
    summary = run(tmp_path / "out", **options)
    assert (per_round(tmp_path / "out", "flt", "ari")[3] == 1) == recovers
    assert (event(summary, "flt", "drifters")[4] > 0.9) == recovers


@pytest.mark.slow
def test_newcomers_and_drift_in_the_same_round(tmp_path, encoder):
    options = OPTIONS | DRIFT | LATE | encoder | {"num_server_rounds": 4, "strategy": "flt"}
    summary = run(tmp_path / "out", **options)
    one = summary["runs"][0]
    assert not set(one["newcomers"]) & set(one["drifters"])
    assert one["ari"] == 1
    assert min(one["accuracy-per-client"]) > 0.85
    assert sorted(np.bincount(one["tasks"])) == [4, 4, 4]  # data are exchanged


@pytest.mark.faults
@pytest.mark.slow
def test_flt_as_it_comes_follows_drift_and_takes_newcomers_in(tmp_path):
    """With UMAP and an autoencoder pre-trained on the first run; flt-graph is asked alike."""
    options = OPTIONS | DRIFT | LATE | {"num_server_rounds": 4, "strategy": "flt"}
    options |= {"encoder": "mnist-5k"}
    summary = run(tmp_path, **options | {"clients": 20, "num_tasks": 2})
    ari = per_round(tmp_path, "flt", "ari")
    assert ari[:2] + ari[3:] == [1, 1, 1]
    assert ari[2] < 0.6
    assert min(event(summary, "flt", "newcomers").values()) > 0.8
    assert event(summary, "flt", "drifters")[3] < 0.5
    assert event(summary, "flt", "drifters")[4] > 0.8
