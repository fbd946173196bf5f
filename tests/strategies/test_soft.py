"""Clients with several models: what FedEM and FedRC train, send and test, worked out by hand.

As in clients/test_local_training.py, a model of weight w gives the one pixel of class 0 the
probability p = 1/(1 + exp(-4w)), and the gradient of w is p - 1.
"""

from math import exp, log

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord

from clients.training.local_training import load_tested_model, train_by_objective
from fl_core.messages import protocol
from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from fl_core.models.layers import with_layer
from fl_core.objectives.fedem import FedEm
from fl_core.objectives.fedrc import FedRc
from fl_core.objectives.plain import Plain
from strategies import ClusteredStrategy, ClusterMean, GraphMean, SingleCluster, SoftClustering
from tests.local_grid import LocalGrid
from tests.local_messages import context, message, personal, sgd, two_numbers
from tests.objective_app import BODY, HEAD, NUM_CLIENTS, arrays_of, run, small_app, two_layers
from tests.toy_app import in_rounds, with_arrays


def right(w):
    return 1 / (1 + exp(-4 * w))


def several(objective, *weights, kind=protocol.TRAIN, round=1, **beside):
    """Return a message with models of these weights; `beside` has an array for each."""
    records = [
        ArrayRecord(
            {
                **two_numbers(w).state_dict(),
                **with_layer(
                    protocol.BESIDE,
                    {"share": torch.zeros(1), **{k: torch.tensor(v[m]) for k, v in beside.items()}},
                ),
            }
        )
        for m, w in enumerate(weights)
    ]
    return message(protocol.pack_models(records), objective=objective, kind=kind, round=round)


def trained(asked, client):
    record, loss = train_by_objective(asked, personal(asked, client), two_numbers(9.0), sgd())
    models = protocol.unpack_models(record)
    share = [float(one[f"{protocol.BESIDE}.share"].numpy()[0]) for one in models]
    return [float(one["output.weight"].numpy()[0, 0]) for one in models], share, loss, models


def probability(asked, client):
    """Return what the tested model says of class 0 of a white pixel."""
    model = load_tested_model(asked, personal(asked, client), two_numbers(9.0), sgd())
    return float(model(torch.ones(1, 1, 1, 1)).detach().softmax(1)[0, 0])


def test_fedem_by_hand():
    """Round 1: q is in proportion to p; round 2: to π p, with π of round 1."""
    client, w, pi = context(), [0.2, -0.3], [0.5, 0.5]
    for number in (1, 2):
        parts = [share * right(one) for share, one in zip(pi, w, strict=True)]
        pi = [part / sum(parts) for part in parts]
        found, shares, loss, _ = trained(several("fedem", *w, round=number), client)
        assert shares == pytest.approx(pi, abs=1e-6)
        expected_loss = sum(-q * log(right(one)) for q, one in zip(pi, w, strict=True))
        assert loss == pytest.approx(expected_loss, abs=1e-6)
        w = [one - 0.1 * q * (right(one) - 1) for q, one in zip(pi, w, strict=True)]
        assert found == pytest.approx(w, abs=1e-6)
    tested = several("fedem", 0.4, -0.1, kind=protocol.EVALUATE, round=2)
    mixed = pi[0] * right(0.4) + pi[1] * right(-0.1)
    assert probability(tested, client) == pytest.approx(mixed, abs=1e-6)
    # A client that never trained weighs the models by its samples.
    parts = [right(0.4), right(-0.1)]
    mixed = sum(part**2 for part in parts) / sum(parts)
    assert probability(tested, context()) == pytest.approx(mixed, abs=1e-6)


def test_fedrc_by_hand():
    """Model 0 has class 0 in 80 % of its parts, model 1 in 20 %: there it explains more."""
    labels = [[0.8, 0.2], [0.2, 0.8]]
    _, shares, _, models = trained(several("fedrc", 0.2, -0.3, labels=labels), context())
    parts = [right(0.2) / 0.8, right(-0.3) / 0.2]
    expected = [part / sum(parts) for part in parts]
    assert shares == pytest.approx(expected, abs=1e-6)
    counts = [one[f"{protocol.BESIDE}.labels"].numpy().tolist() for one in models]
    np.testing.assert_allclose(counts, [[expected[0], 0], [expected[1], 0]], atol=1e-6)
    before = {"share": np.zeros(1), "labels": np.array([0.5, 0.5])}
    mean = {"share": np.ones(1), "labels": np.array([0.3, 0.1])}
    combined = FedRc().combine_beside(before, mean, 1.0)
    np.testing.assert_allclose(combined["labels"], [0.75, 0.25])
    first = FedRc().first_beside({"w": np.zeros((4, 3)), "b": np.zeros(4)})
    assert first["labels"].tolist() == [0.25] * 4


def drawn(number):
    return {n: t.numpy() for n, t in two_layers(number).state_dict().items()}


def soft(local, **options):
    return ClusteredStrategy(SoftClustering(2, drawn), ClusterMean(True), local, **options)


@pytest.mark.parametrize("local", [FedEm(), FedRc()], ids=["fedem", "fedrc"])
def test_models_are_means_over_all_clients_and_bytes_are_of_all_models(local):
    world = LocalGrid(small_app(), NUM_CLIENTS)
    one = soft(local)
    result = run(one, world, 2)
    training = one.training
    assert not list(training.registry.log)
    assert {name.partition("/")[2] for name in result.arrays} == {*BODY, *HEAD}
    for report in one.reports:
        assert list(report.shares) == list(range(NUM_CLIENTS))
        assert all(sum(shares) == pytest.approx(1, abs=1e-5) for shares in report.shares.values())
    last = {c: int(np.argmax(shares)) for c, shares in one.reports[-1].shares.items()}
    assert one.clusters.of_client == last
    samples = one.reports[-1].samples
    for number, model in enumerate(training.models):
        shares = [one.reports[-1].shares[client][number] for client in samples]
        mean = np.average(shares, weights=list(samples.values()))
        assert model[f"{protocol.BESIDE}.share"][0] == pytest.approx(mean, abs=1e-6)
        if isinstance(local, FedRc):
            assert model[f"{protocol.BESIDE}.labels"].sum() == pytest.approx(1, abs=1e-6)
    size = sum(len(array.data) for record in training.records for array in record.values())
    assert training.train_traffic.down == 2 * NUM_CLIENTS * size
    assert training.evaluate_traffic.down == 2 * NUM_CLIENTS * size
    assert size < training.train_traffic.up / (2 * NUM_CLIENTS) < size + 50  # and metrics


@pytest.mark.parametrize("wrong", [(1.5, -1.0), (9e9, 0.0)])
def test_by_hand_fedrc_refuses_parts_of_classes_that_are_not_a_client_s_share(wrong):
    sent = {"share": np.array([0.5], np.float32), "labels": np.array([0.2, 0.3], np.float32)}
    FedRc().check_beside(sent)

    def replace(arrays):
        arrays[f"0/{protocol.BESIDE}.labels"] = np.array(wrong, np.float32)

    corrupt = {(protocol.TRAIN, 3): in_rounds(2, corrupt=with_arrays(replace))}
    one = soft(FedRc())
    run(one, LocalGrid(small_app(corrupt), NUM_CLIENTS), 2)
    failure = next(iter(one.training.registry.log))
    assert failure.client == 3
    assert failure.reason.startswith("its parts of classes are [")
    assert all(model[f"{protocol.BESIDE}.labels"].min() >= 0 for model in one.training.models)


def test_who_does_not_train_keeps_its_shares_and_an_impossible_mixture_is_refused():
    def double(arrays):
        arrays[f"0/{protocol.BESIDE}.share"] += 1

    corrupt = {(protocol.TRAIN, 3): in_rounds(2, corrupt=with_arrays(double))}
    one = soft(FedEm())
    run(one, LocalGrid(small_app(corrupt), NUM_CLIENTS), 2)
    first, second = one.reports
    assert first.shares[3] == second.shares[3] != first.shares[2]
    reason = next(iter(one.training.registry.log)).reason
    assert reason.startswith("its shares of clusters are")
    assert first.shares[2] != second.shares[2]


def test_a_training_that_is_resumed_ends_as_an_undisturbed_one(tmp_path):
    whole = run(soft(FedRc()), LocalGrid(small_app(), NUM_CLIENTS))
    world = LocalGrid(small_app(), NUM_CLIENTS)
    one = soft(FedRc())
    run(one, world, 2)
    save_checkpoint(tmp_path / "state", one.checkpoint())
    again = soft(FedRc())
    again.resume(load_checkpoint(tmp_path / "state"))
    assert arrays_of(run(again, world)) == arrays_of(whole)
    assert again.reports[1].shares == one.reports[1].shares


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((SingleCluster(), ClusterMean(), FedEm()), "fedem trains all clusters' models"),
        ((SoftClustering(2, drawn), ClusterMean(), Plain()), "plain trains one model"),
        ((SoftClustering(2, drawn), GraphMean(), FedEm()), "makes a model for each client"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(parts, said):
    with pytest.raises(ValueError, match=said):
        ClusteredStrategy(*parts)
