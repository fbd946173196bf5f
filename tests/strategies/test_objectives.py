"""What a server says, sends and never sees again, by local objective."""

import numpy as np
import pytest

from fl_core.messages import protocol
from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from fl_core.models.layers import named_layers
from fl_core.objectives.ditto import Ditto
from fl_core.objectives.plain import Plain
from fl_core.objectives.private_head import PrivateHead
from fl_core.objectives.private_layers import PrivateLayers
from fl_core.objectives.prox import Prox
from fl_core.objectives.scaffold import Scaffold
from strategies import ClusteredStrategy, LossClustering, SingleCluster, UpdateClustering
from tests.local_grid import LocalGrid, Visits
from tests.objective_app import (
    BODY,
    HEAD,
    INITIAL,
    NUM_CLIENTS,
    arrays_of,
    names_in,
    run,
    small_app,
    strategy,
    two_layers,
)
from tests.samples import sampled
from tests.toy_app import in_rounds, with_metrics

STATEFUL = {
    "ditto": Ditto(0.5),
    "private-layers": PrivateLayers(),
    "private-head": PrivateHead(head_epochs=2),
}
every_keeping = pytest.mark.parametrize("local", STATEFUL.values(), ids=STATEFUL)


def grid(corrupt=None, order=list):
    return LocalGrid(small_app(corrupt), NUM_CLIENTS, order=order)


def sent(world, client, kind=protocol.TRAIN):
    node = world.node_of(client)
    return [
        m for m in world.sent if (m.metadata.dst_node_id, m.metadata.message_type) == (node, kind)
    ]


@every_keeping
def test_what_the_server_holds_and_hears(local):
    replies = []
    world = grid(order=lambda found: replies.extend(found) or found)
    one = strategy(local)
    result = run(one, world)
    shared = [*BODY, *HEAD] if isinstance(local, Ditto) else BODY
    assert {name.partition("/")[2] for name in result.arrays} == set(shared)
    assert names_in(replies) == names_in(world.sent) == set(shared)
    assert one.reports[-1].loss < one.reports[0].loss
    states = [world.contexts[world.node_of(c)].state for c in range(NUM_CLIENTS)]
    stored = {name for state in states for name in state.array_records["personal"]}
    assert stored == ({*BODY, *HEAD} if isinstance(local, Ditto) else set(HEAD))
    values = {state.array_records["personal"]["output.bias"].numpy().tobytes() for state in states}
    assert len(values) == NUM_CLIENTS


def test_first_private_layers_are_sent_once():
    world = grid()
    one = strategy(PrivateLayers(), fraction_train=0.6, seed=2)
    run(one, world, 4)
    trained = set()
    for number in range(1, 5):
        of_round = [m for m in world.sent if m.metadata.group_id == str(number)]
        for kind in (protocol.TRAIN, protocol.EVALUATE):
            for message in [m for m in of_round if m.metadata.message_type == kind]:
                node = message.metadata.dst_node_id
                records = message.content.array_records
                assert (protocol.PRIVATE in records) == (node not in trained)
                if node not in trained:
                    first = INITIAL["output.bias"].numpy()
                    assert records[protocol.PRIVATE]["output.bias"].numpy().tolist() == (
                        first.tolist()
                    )
            trained |= {
                m.metadata.dst_node_id for m in of_round if m.metadata.message_type == "train"
            }
    body, head = (sum(len(INITIAL[name].data) for name in names) for names in (BODY, HEAD))
    trainings = sum(m.metadata.message_type == "train" for m in world.sent)
    assert one.training.train_traffic.down == trainings * body + len(trained) * head


def test_who_may_have_lost_its_layers_is_sent_them_again_and_retains_its_own():
    world = grid({("train", 2): in_rounds(2)})
    one = strategy(PrivateLayers())
    run(one, world, 4)
    brought = [protocol.PRIVATE in m.content.array_records for m in sent(world, 2)]
    assert brought == [True, False, True, False]
    undisturbed = grid()
    run(strategy(PrivateLayers()), undisturbed, 4)
    one, other = (
        w.contexts[w.node_of(2)].state.array_records["personal"]["output.bias"].numpy()
        for w in (world, undisturbed)
    )
    first = INITIAL["output.bias"].numpy()
    # Its answer was lost, not its training: it goes on from there, not from the first layers.
    assert np.abs(one - other).max() < np.abs(one - first).max() / 4


@pytest.mark.parametrize("secure", [False, True])
@every_keeping
def test_who_comes_back_as_another_node_costs_no_round(local, secure, caplog):
    # The last node is client 0's new one, on which nothing is stored yet.
    app = small_app({("query.describe", NUM_CLIENTS): with_metrics(client_index=0)})
    world = Visits(app, NUM_CLIENTS + 1, {0: {2, 3}, NUM_CLIENTS: {0, 1}})
    one = strategy(local, secure_aggregation=secure)
    run(one, world, 3)
    assert world.rounds_of(NUM_CLIENTS) == [2, 3]
    assert "client 0" not in caplog.text


def test_without_a_pull_prox_and_the_shared_model_of_ditto_are_plain():
    plain = arrays_of(run(strategy(Plain()), grid()))
    assert arrays_of(run(strategy(Prox(0.0)), grid())) == plain
    assert arrays_of(run(strategy(Ditto(0.0)), grid())) == plain
    assert arrays_of(run(strategy(Ditto(2.0)), grid())) == plain
    assert arrays_of(run(strategy(Prox(0.5)), grid())) != plain


def test_what_travels_beside_is_the_state_of_each_cluster():
    """SCAFFOLD's c is the mean of its clients' c_i, 0 of those that have not trained yet."""
    world = grid()
    one = strategy(Scaffold(), fraction_train=0.4, seed=1)
    result = run(one, world, 2)
    assert {name.partition("/")[2] for name in result.arrays} == {*BODY, *HEAD}
    assert len(one.training.trained) < NUM_CLIENTS
    for cluster, model in enumerate(one.training.models):
        members = one.clusters.members(cluster)
        states = [world.contexts[world.node_of(client)].state for client in members]
        stored = [s.array_records["personal"] for s in states if "personal" in s.array_records]
        assert stored
        for name in (*BODY, *HEAD):
            mean = sum(record[name].numpy() for record in stored) / len(members)
            assert np.abs(mean).max() > 0
            np.testing.assert_allclose(model[f"{protocol.BESIDE}.{name}"], mean, atol=1e-6)


def drawn(number):
    return {n: t.numpy() for n, t in two_layers(number).state_dict().items()}


@pytest.mark.parametrize(
    "clustering", [UpdateClustering(2), LossClustering(2, drawn, enforce=False)]
)
def test_a_clustering_sees_models_without_what_travels_beside(clustering):
    seen = []
    usual = clustering.after_training
    clustering.after_training = lambda state: seen.append(state) or usual(state)
    one = ClusteredStrategy(clustering, local=Scaffold())
    run(one, grid())
    assert not one.failures and not list(one.training.registry.log)
    assert {name for state in seen for u in state.updates for name in u.arrays} == {*BODY, *HEAD}
    assert all(protocol.BESIDE in "".join(model) for model in one.training.models)


class CutOffError(Exception):
    pass


@every_keeping
def test_a_run_that_is_cut_off_goes_on_with_what_clients_stored(local, tmp_path):
    """Clients are still there, having trained a round further than the checkpoint knows."""
    expected = run(strategy(local), grid(), 5)
    world, stored = grid(), {}

    def on_round(report):
        if report.round == 2:
            save_checkpoint(tmp_path / "c", one.checkpoint())
            states = {n: c.state.array_records["personal"] for n, c in world.contexts.items()}
            stored.update({node: protocol.to_arrays(record) for node, record in states.items()})
        if report.round == 3:
            raise CutOffError

    one = strategy(local, on_round=on_round)
    with pytest.raises(CutOffError):
        run(one, world, 5)
    again = strategy(local)
    again.resume(load_checkpoint(tmp_path / "c"))
    for node, arrays in stored.items():
        state = world.contexts[node].state
        state["personal"] = protocol.to_record(arrays)
        state["personal-about"]["round"] = 2
    assert arrays_of(run(again, world, 5)) == arrays_of(expected)
    assert again.training.train_traffic.up > 0
    undisturbed = strategy(local)
    run(undisturbed, grid(), 5)
    assert again.training.train_traffic == undisturbed.training.train_traffic
    assert again.reports == undisturbed.reports


@every_keeping
def test_ifca_asks_for_losses_of_whole_models(local):
    world = grid()
    one = ClusteredStrategy(LossClustering(2, drawn, enforce=False), local=local)
    run(one, world)
    assert not one.failures
    private = () if isinstance(local, Ditto) else HEAD
    asked = [m for m in world.sent if m.metadata.message_type == "query.losses"]
    names = {name.partition("/")[2] for name in names_in(asked)}
    assert names == {*BODY, *HEAD} - set(private)
    # The first round's training names one of the models that the query brought.
    first = sent(world, 0)[0].content
    assert protocol.STORED_MODEL in first.config_records[protocol.CONFIG]
    assert len(one.reports[-1].tested) == NUM_CLIENTS


@pytest.mark.parametrize("local", sampled([Prox(0.3), *STATEFUL.values()], 3, ["prox", *STATEFUL]))
def test_secure_sums_are_over_what_is_shared(local):
    plain = run(ClusteredStrategy(SingleCluster(), local=local), grid())
    world = grid()
    secure = run(ClusteredStrategy(SingleCluster(), local=local, secure_aggregation=True), world)
    assert list(secure.arrays) == list(plain.arrays)
    for name in plain.arrays:
        found, expected = secure.arrays[name].numpy(), plain.arrays[name].numpy()
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_layers_by_name():
    names = ["conv.weight", "norm.weight", "norm.running_mean", "block.0.weight", "fc.bias"]
    assert named_layers("x", "last", names) == ("fc",)
    assert named_layers("x", "conv, block", names) == ("conv", "block")
    with pytest.raises(ValueError, match='private-layers names "con", but the model\'s layers are'):
        named_layers("private-layers", "con", names)
    with pytest.raises(ValueError, match='x is "conv,norm,block,fc", which is all layers'):
        named_layers("x", "conv,norm,block,fc", names)


@every_keeping
def test_a_run_goes_on_where_no_client_has_stored_anything(local, tmp_path):
    """Devices without a `model-path`: with private layers, that costs a round."""
    one = strategy(local)
    run(one, grid(), 2)
    save_checkpoint(tmp_path / "c", one.checkpoint())
    again = strategy(local)
    again.resume(load_checkpoint(tmp_path / "c"))
    run(again, grid(), 4)
    assert [len(report.samples) for report in again.reports[-1:]] == [NUM_CLIENTS]
