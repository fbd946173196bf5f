"""Secure aggregation between a strategy and clients in this process; toy_app has the numbers."""

import base64
import itertools
import logging
from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from flwr.app import Array, ConfigRecord
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_separate
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes

from clients.secure_aggregation import STATE
from fl_core.wire import masking, protocol
from strategies import ClusterMean, GivenClusters, LpsGps, Optimum, Random, RccPfl, Single
from strategies.base import ClusteredStrategy
from strategies.secure.secure_group import Group
from tests.local_grid import LocalGrid, Visits
from tests.samples import sampled
from tests.toy_app import (
    MODEL,
    STRATEGIES,
    fail,
    in_rounds,
    reply,
    run,
    toy_app,
    weights,
    with_arrays,
)

TWO_TASKS = [0, 0, 0, 0, 0, 1, 1, 1]  # clusters of five and three clients
KEYS, SHARES, UNMASK = (
    protocol.query(action)
    for action in (protocol.PUBLIC_KEYS, protocol.SHARE_KEYS, protocol.UNMASK)
)

pytestmark = pytest.mark.usefixtures("plane_without_umap")


def optimum(tasks=TWO_TASKS, **options):
    return Optimum(dict(enumerate(tasks)), secure_aggregation=True, **options)


def grid_of(spoil=None, tasks=TWO_TASKS, kind=LocalGrid):
    return kind(toy_app(tasks, spoil), len(tasks))


def logged(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


REFUSED = (
    *("mt-hfl", "flt", "flt-graph", "fedhc", "ifca", "ifca-pfl", "fedsem", "cfl", "local"),
    *("fedclust", "flexcfl"),
)


@pytest.mark.parametrize("name", REFUSED)
def test_strategies_that_need_single_models_are_refused(name):
    with pytest.raises(ValueError, match=r"secure-aggregation is true, but the .* choose another"):
        STRATEGIES[name](secure_aggregation=True)


@pytest.mark.parametrize(
    ("weighted", "name"),
    sampled(itertools.product([False, True], sorted(STRATEGIES.keys() - set(REFUSED))), 5),
)
def test_the_others_come_to_the_same_as_without(name, weighted):
    tasks = [0, 1, 2] * 3
    special = {
        "optimum": lambda **options: Optimum(dict(enumerate(tasks)), **options),
        "random": lambda **options: Random([5, 4], **options),
    }
    found = []
    for secure in (False, True):
        make = special.get(name, STRATEGIES[name])
        strategy = make(secure_aggregation=secure, weighted_mean=weighted)
        run(strategy, grid_of(tasks=tasks), 3)
        found.append(strategy.training)
    plain, secure = found
    assert plain.clusters.of_client == secure.clusters.of_client
    for model, other in zip(plain.models, secure.models, strict=True):
        assert other["w"] == pytest.approx(model["w"], rel=1e-6)
        assert other["steps"] == model["steps"] == 3
    last, other = plain.reports[-1], secure.reports[-1]
    assert other.train_loss == pytest.approx(last.train_loss)
    assert other.tested == pytest.approx(last.tested, rel=1e-6)
    assert sorted(last.samples) == list(range(9))
    assert not other.samples  # nobody tells the server


def test_pairs_that_need_single_models_are_refused():
    for clustering, aggregation in (
        (GivenClusters({0: 0}), LpsGps(("steps",))),
        (STRATEGIES["fedhc"](3).clustering, ClusterMean()),
    ):
        ClusteredStrategy(clustering, aggregation)
        with pytest.raises(ValueError, match="choose another strategy, or set secure-aggregation"):
            ClusteredStrategy(clustering, aggregation, secure_aggregation=True)


# Clients 0 to 4 of the first cluster add 1 to 5; the others' cluster has 6, 7 and 8.
@pytest.mark.parametrize(
    ("stage", "gone", "mean"),
    sampled(
        [
            (KEYS, {1}, (1 + 3 + 4 + 5) / 4),
            (KEYS, {1, 4}, (1 + 3 + 4) / 3),
            (SHARES, {0}, (2 + 3 + 4 + 5) / 4),
            (SHARES, {0, 3}, (2 + 3 + 5) / 3),
            (protocol.TRAIN, {2}, (1 + 2 + 4 + 5) / 4),
            (protocol.TRAIN, {0, 4}, (2 + 3 + 4) / 3),
            (UNMASK, {3}, 3),
            (UNMASK, {1, 2}, 3),
        ],
        2,
    ),
)
def test_who_drops_out_costs_the_others_nothing(stage, gone, mean, caplog):
    grid = grid_of({(stage, client): fail for client in gone})
    strategy = optimum()
    assert weights(run(strategy, grid)) == pytest.approx([mean, 7])
    for client in gone:
        assert any(line.startswith(f"client {client} failed ") for line in logged(caplog))
    # They are back in the next round.
    grid = grid_of({(stage, client): in_rounds(1) for client in gone})
    assert weights(run(strategy, grid, 2)) == pytest.approx([mean + 3, 14])


def test_drop_outs_at_every_stage_at_once(caplog):
    tasks = [0] * 9
    stages = (KEYS, SHARES, protocol.TRAIN, UNMASK)
    spoil = {(stage, client): in_rounds(2) for client, stage in enumerate(stages)}
    # Nobody hears of 0 any more; 3's update is in the sum. 4 to 9 are left, and 5 are needed.
    (found,) = weights(run(optimum(tasks), grid_of(spoil, tasks), 2))
    assert found == 5 + np.mean([4, 5, 6, 7, 8, 9])


@pytest.mark.parametrize(
    ("stage", "gone", "reason"),
    [
        (KEYS, {0, 1, 2}, "2 of its clients sent keys, and it takes 3"),
        (SHARES, {0, 1, 2}, "2 of its clients sent shares, and it takes 3"),
        (protocol.TRAIN, {0, 1, 2}, "2 of its clients sent an update, and it takes 3"),
        (UNMASK, {0, 1, 2}, "of client 0's secret 2 fitting shares came back, and it takes 3"),
        (UNMASK, {0, 1, 2, 3, 4}, "of client 0's secret 0 fitting shares came back"),
    ],
)
def test_a_cluster_with_too_few_left_keeps_its_model_and_the_log_says_why(
    stage, gone, reason, caplog
):
    strategy = optimum()
    grid = grid_of({(stage, client): in_rounds(2) for client in gone})
    assert weights(run(strategy, grid, 2)) == [3, 14]
    assert any(
        line.startswith("cluster 0 keeps its model in round 2: ") and reason in line
        for line in logged(caplog)
    )


def test_two_clients_do_not_train_and_none_ends_the_run(caplog):
    tasks = [0, 0, 0, 1, 1]
    assert weights(run(optimum(tasks), grid_of(tasks=tasks))) == [2, 0]
    assert any("2 of its clients take part, and it takes 3" in line for line in logged(caplog))
    for few in ([0, 0, 1, 1], [0, 0]):
        with pytest.raises(RuntimeError, match="no cluster has 3 clients"):
            run(optimum(few), grid_of(tasks=few))


def test_a_share_that_is_too_small_for_any_sum_ends_the_run():
    grid = grid_of(tasks=[0] * 8)
    with pytest.raises(RuntimeError, match=r"fraction-train is 0\.25, which of 8 clients is fewer"):
        run(optimum([0] * 8, fraction_train=0.25), grid)
    assert {m.metadata.message_type for m in grid.sent} == {protocol.query(protocol.DESCRIBE)}


def test_a_share_that_suffices_goes_on_sufficing_when_a_client_fails():
    """Half of six are three, and of five that are left two, which no sum is of."""
    spoil = {(protocol.query(protocol.SPECTRUM), 5): fail}
    strategy = RccPfl(1, num_eigenvectors=3, fraction_train=0.5, secure_aggregation=True)
    grid = LocalGrid(toy_app([0] * 6, spoil), 6)
    run(strategy, grid, 2)
    assert strategy.failures.keys() == {5}
    for number in ("1", "2"):
        assert sum(message.metadata.group_id == number for message in trainings(grid)) == 3


def test_a_round_in_which_nobody_sends_an_update_ends_the_run():
    spoil = {(protocol.TRAIN, client): in_rounds(2) for client in range(8)}
    with pytest.raises(RuntimeError, match="no client sent a usable model in round 2"):
        run(optimum(), grid_of(spoil), 3)


def test_a_round_without_keys_is_lost_and_a_run_of_such_rounds_fails(caplog):
    spoil = {(KEYS, client): in_rounds(1, 2) for client in range(8)}
    assert weights(run(optimum(), grid_of(spoil), 3)) == [3, 7]
    assert "round 2 is lost: no participant sent a usable model" in logged(caplog)
    with pytest.raises(RuntimeError, match="no round had a sum, so nothing was learnt"):
        run(optimum(), grid_of(spoil), 2)


def test_an_app_without_the_mod_is_told_so(caplog):
    def without(message, context, answer):
        return reply(message, arrays=message.content[protocol.ARRAYS])

    spoil = {(protocol.TRAIN, client): without for client in range(8)}
    with pytest.raises(RuntimeError, match="no client sent a usable model in round 1"):
        run(optimum(), grid_of(spoil))
    assert any(
        line.startswith("client 0 failed") and "its ClientApp needs the mod" in line
        for line in logged(caplog)
    )


def test_a_share_of_the_clients_takes_part():
    strategy = optimum([0] * 8, fraction_train=0.5)
    (found,) = weights(run(strategy, grid_of(tasks=[0] * 8)))
    assert strategy.reports[-1].train_loss + 1 == pytest.approx(found)


class Listening(LocalGrid):
    """A server that writes down all that it is sent."""

    def __init__(self, app, num_clients):
        super().__init__(app, num_clients)
        self.heard = {}

    def send_and_receive(self, messages, *, timeout=None):
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for message in replies:
            client = self.contexts[message.metadata.src_node_id].node_config["partition-id"]
            if not message.has_error():
                self.heard[message.metadata.message_type, client] = message.content
        return replies

    def arrays(self, kind, client):
        return protocol.to_arrays(self.heard[kind, client].array_records[protocol.ARRAYS])


def test_the_server_is_sent_no_update_loss_or_weight():
    grid = grid_of(kind=Listening)
    sums = []
    for _ in range(2):
        run(optimum(weighted_mean=True), grid)
        sent = {c: grid.heard[protocol.TRAIN, c] for c in range(8)}
        assert all(set(content) == {protocol.ARRAYS} for content in sent.values())
        words = [grid.arrays(protocol.TRAIN, c)[protocol.MASKED] for c in range(5)]
        # Numbers of an update are below 2⁶³/clients in size; these are spread over all there are.
        sums.append(np.concatenate(words))
    assert (sums[0] != sums[1]).all()
    assert 0.2 < np.mean(np.concatenate(sums) > 2**63) < 0.8


def held_by(grid, clients, victim, kind):
    """Return the shares of a victim's secret that a coalition of clients and the server holds.

    Each client's keys for shares are its own; the ciphertexts went through the server.
    """
    found = []
    for client in clients:
        key = grid.kept[client]["share-keys"][victim]
        ciphertext = grid.arrays(SHARES, victim)[protocol.SHARES][client].tobytes()
        found.append(share_keys_plaintext_separate(decrypt(key, ciphertext))[2 + kind])
    return found


class Leaking(Listening):
    """Clients' states are written down before they reveal anything."""

    def __init__(self, app, num_clients):
        super().__init__(app, num_clients)
        self.kept = {}

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for message in messages:
            context = self.contexts[message.metadata.dst_node_id]
            if message.metadata.message_type == UNMASK:
                client = context.node_config["partition-id"]
                self.kept[client] = dict(context.state.config_records[STATE])
        return super().send_and_receive(messages, timeout=timeout)


def test_a_coalition_below_the_threshold_learns_no_secret():
    grid = grid_of(kind=Leaking)
    run(optimum(), grid)
    victim = 4
    seed = grid.kept[victim]["seed"]
    public = grid.arrays(KEYS, victim)[protocol.KEYS][0].tobytes()

    def secrets(clients):
        for kind in (0, 1):
            try:
                yield combine_shares(held_by(grid, clients, victim, kind))
            except ValueError:  # what came out is no secret
                yield b""

    for three in itertools.combinations(range(4), 3):
        of_seed, of_key = secrets(three)
        assert of_seed == seed
        assert public_key_to_bytes(masking.private_key(of_key).public_key()) == public
    for two in itertools.combinations(range(4), 2):
        of_seed, of_key = secrets(two)
        assert of_seed != seed
        # Three would have found this secret, whose public key is known; two do not.
        assert of_key != combine_shares(held_by(grid, [0, 1, 2], victim, 1))


def test_two_others_and_the_server_do_not_unmask_an_update():
    """The coalition takes off all that it knows, and noise is left."""
    grid = grid_of(kind=Leaking)
    run(optimum(), grid)
    victim, others = 4, (0, 1)
    words = grid.arrays(protocol.TRAIN, victim)[protocol.MASKED].copy()
    own = grid.kept[victim]
    # What the server learnt in the end, and what the two clients have in common with the victim.
    words -= masking.mask(own["seed"], len(words))
    keys = pair_keys(grid, victim)
    for other in others:  # the victim comes last, so it took common masks away
        words += masking.mask(keys[other], len(words))
    assert not sensible(words)
    for other in (2, 3):
        words += masking.mask(keys[other], len(words))
    assert sensible(words)


def pair_keys(grid, victim):
    """Return, by all shares of its key, the keys of the masks that a client has with others."""
    private = masking.private_key(combine_shares(held_by(grid, [0, 1, 2], victim, 1)))
    publics = {c: grid.arrays(KEYS, c)[protocol.KEYS][0].tobytes() for c in range(5)}
    return {c: masking.common_key(private, bytes_to_public_key(k)) for c, k in publics.items()}


def sensible(words):
    return bool((np.abs(words.view(np.int64).astype(float)) < 2**40).all())


class Asking(LocalGrid):
    """A server that changes what it asks the first cluster.

    `change` is from message type to what is done to a message.
    """

    def __init__(self, app, num_clients, change):
        super().__init__(app, num_clients)
        self.change = change

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for message in messages:
            client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
            if message.metadata.message_type in self.change and TWO_TASKS[client] == 0:
                self.change[message.metadata.message_type](message)
        return super().send_and_receive(messages, timeout=timeout)


def set_places(**places):
    def change(message):
        record = message.content.array_records[protocol.ARRAYS]
        for name, value in places.items():
            record[name] = Array(np.array(value, np.int64))

    return change


def tell(**values):
    def change(message):
        told = dict(message.content.config_records[protocol.CONFIG])
        message.content[protocol.CONFIG] = ConfigRecord({**told, **values})

    return change


def repeat_key(message):
    record = message.content.array_records[protocol.ARRAYS]
    keys = record[protocol.KEYS].numpy().copy()
    keys[-1] = keys[0]
    record[protocol.KEYS] = Array(keys)


def two_keys(message):
    record = message.content.array_records[protocol.ARRAYS]
    record[protocol.KEYS] = Array(record[protocol.KEYS].numpy()[:2])


@pytest.mark.parametrize(
    ("stage", "change", "reason"),
    [
        (UNMASK, set_places(survivors=[0, 1, 2, 3, 4], dropped=[2]), "shares for a sum of 5 of"),
        (UNMASK, set_places(survivors=[0, 1], dropped=[2]), "shares for a sum of 2 of"),
        (UNMASK, set_places(survivors=[7, 8, 9], dropped=[]), "shares for a sum of 3 of"),
        (UNMASK, set_places(survivors=[0, 1, -1], dropped=[]), "shares for a sum of 3 of"),
        (UNMASK, set_places(survivors=[0, 1, 5], dropped=[]), "shares for a sum of 3 of"),
        (UNMASK, set_places(survivors=[0, 1, 1], dropped=[]), "shares for a sum of 3 of"),
        (UNMASK, set_places(survivors=[0, 1, 2], dropped=[-1]), "shares for a sum of 3 of"),
        (protocol.TRAIN, tell(peers=[0, 1]), "2 of 5 clients are to be summed"),
        # -1 is the last one, too: the masks in common with it would cancel.
        (protocol.TRAIN, tell(peers=[0, 4, -1]), "3 of 5 clients are to be summed"),
        (protocol.TRAIN, tell(peers=[0, 1, 5]), "3 of 5 clients are to be summed"),
        (protocol.TRAIN, tell(peers=[0, 1, 1]), "3 of 5 clients are to be summed"),
        (protocol.TRAIN, tell(peers=[1, 2, 3]), "3 of 5 clients are to be summed"),
        (SHARES, repeat_key, "5 clients' keys came"),
        (SHARES, two_keys, "2 clients' keys came"),
    ],
)
def test_a_client_refuses_what_would_give_somebody_away(stage, change, reason, caplog):
    grid = Asking(toy_app(TWO_TASKS), 8, {stage: change})
    run(optimum(), grid)
    assert any(line.startswith("client 0 failed") and reason in line for line in logged(caplog))
    assert any(line.startswith("cluster 0 keeps its model") for line in logged(caplog))


class Twice(LocalGrid):
    """A server that sends everything of one kind a second time."""

    def __init__(self, app, num_clients, kind):
        super().__init__(app, num_clients)
        self.kind = kind
        self.said = set()

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = super().send_and_receive(messages, timeout=timeout)
        for message in messages:
            if message.metadata.message_type == self.kind:
                (reply,) = super().send_and_receive([message])
                self.said.add(reply.error.reason if reply.has_error() else "an answer")
        return replies


@pytest.mark.parametrize(
    ("stage", "reason"),
    [(protocol.TRAIN, "has no keys left for it"), (UNMASK, "has revealed its shares already")],
)
def test_nothing_is_answered_twice(stage, reason):
    grid = Twice(toy_app(TWO_TASKS), 8, stage)
    assert weights(run(optimum(), grid)) == [3, 7]
    (said,) = grid.said
    assert reason in said


def garbage(name, row=slice(None)):
    """Return a change of an answer's array: random bits in it, or in a row."""

    def change(arrays):
        bits = np.random.default_rng(1).bytes(arrays[name].nbytes)
        noise = np.frombuffer(bits, arrays[name].dtype).reshape(arrays[name].shape)
        arrays[name][row] = noise[row]

    return with_arrays(change)


def shortened(name):
    def change(arrays):
        arrays[name] = arrays[name][:1]

    return with_arrays(change)


# Client 1 sent client 0 what is no share, or client 0 says so: the server cannot tell.
UNREAD = (
    "client 0 failed at unmask in round 1: its shares of client 1 could not be read and are left "
    "out; either side may be at fault"
)


@pytest.mark.parametrize(
    ("stage", "spoil", "mean", "named"),
    [
        (KEYS, garbage("keys"), 13 / 4, "client 1 failed at public_keys"),
        (KEYS, shortened("keys"), 13 / 4, "its keys are uint8 of shape (1, 215)"),
        (SHARES, shortened("shares"), 13 / 4, "client 1 failed at share_keys"),
        (SHARES, garbage("shares", 0), 3, UNREAD),
        (protocol.TRAIN, shortened("masked"), 13 / 4, "client 1 failed in round 1"),
        (
            UNMASK,
            garbage("shares"),
            3,
            "client 1 takes part in no secure sum of this run any more: its secrets' shares are "
            "not what was announced",
        ),
        (UNMASK, shortened("shares"), 3, "client 1 failed at unmask"),
    ],
)
def test_garbage_of_one_client_is_named_and_survived(stage, spoil, mean, named, caplog):
    assert weights(run(optimum(), grid_of({(stage, 1): spoil}))) == pytest.approx([mean, 7])
    assert any(named in line for line in logged(caplog))


def same_twice(arrays):
    arrays["keys"][1] = arrays["keys"][0]


def of_another_kind(arrays):
    """An RSA key that is as long as one of ours."""
    key = rsa.RSAPublicNumbers(65537, 2**703 + 1).public_key()
    arrays["keys"][0] = np.frombuffer(public_key_to_bytes(key), np.uint8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(same_twice, "its two keys are the same"), (of_another_kind, "its keys are none of ours")],
)
def test_keys_that_all_others_would_refuse_cost_their_client_alone(change, reason, caplog):
    grid = grid_of({(KEYS, 1): with_arrays(change)})
    assert weights(run(optimum(), grid)) == pytest.approx([13 / 4, 7])
    assert logged(caplog) == [
        f"client 1 failed at public_keys in round 1: {reason}",
        f"client 1 takes part in no secure sum of this run any more: {reason}",
    ]


@pytest.mark.parametrize("row", [0, 1])
def test_two_clients_with_one_key_are_left_out_and_named(row, caplog):
    sent = []

    def note(arrays):
        sent.append(arrays["keys"][0].copy())

    def copy(arrays):
        arrays["keys"][row] = sent[-1]

    tasks = [0] * 5
    grid = grid_of({(KEYS, 1): with_arrays(note), (KEYS, 3): with_arrays(copy)}, tasks)
    assert weights(run(optimum(tasks), grid)) == pytest.approx([(1 + 3 + 5) / 3])
    reason = "failed at public_keys in round 1: another client sent one of its keys, too"
    assert logged(caplog) == [f"client {client} {reason}" for client in (1, 3)]


@pytest.mark.parametrize("name", ["digests", "shares"])
def test_shares_that_spoil_a_sum_cost_one_round_and_their_client_all_others(name, caplog):
    strategy = optimum()
    found = run(strategy, grid_of({(SHARES, 1): garbage(name)}), 3)
    assert weights(found) == pytest.approx([2 * 13 / 4, 21])  # without client 1, after the first
    lost = "cluster 0 keeps its model in round 1: of client 1's secret 0 fitting shares came back"
    assert any(line.startswith(lost) for line in logged(caplog))
    reason = "its secrets' shares are not what was announced"
    assert f"client 1 takes part in no secure sum of this run any more: {reason}" in logged(caplog)
    assert [report.left_out_of_sums for report in strategy.reports] == [{1: reason}] * 3


def test_a_cluster_of_fewer_than_six_says_that_it_cannot_search(caplog):
    grid = grid_of({(protocol.TRAIN, 1): in_rounds(1, 2, spoil=garbage("masked"))})
    assert weights(run(optimum(), grid, 3)) == pytest.approx([3, 21])
    lines = logged(caplog)
    for number in (1, 2):
        lost = f"cluster 0 keeps its model in round {number}: what they sent does not add up to"
        assert any(line.startswith(lost) for line in lines)
    (said,) = [line for line in lines if "spoils" in line]
    assert "cluster 0 has a client that spoils sums" in said
    assert "5 clients are too few to search for it, which takes 6" in said


def test_a_cluster_of_fewer_than_six_does_not_stand_still_for_good():
    """Client 0 makes two sums short, and behaves: others' updates are then too long, but usual."""
    trained = Counter()

    def step(client, task):
        trained[client] += 1
        return (-3.9 if client == 0 and trained[client] < 3 else 1, 0)

    strategy = optimum([0] * 5)
    (found,) = weights(run(strategy, LocalGrid(toy_app([0] * 5, step=step), 5), 6))
    assert found == pytest.approx(4 * 0.1 / 5 + 2)  # rounds 3 and 4 count as long as the first two
    assert not strategy.reports[-1].left_out_of_sums


def test_a_sum_alone_that_is_too_long_counts_so_that_the_next_updates_are_others(caplog):
    """The same updates, summed over other clients, would tell what one of them sent."""

    def step(client, task):
        trained[client] += 1
        return (100.0 if (client, trained[client]) == (0, 3) else 1, 0)

    trained = Counter()
    strategy = optimum([0] * 5)
    (found,) = weights(run(strategy, LocalGrid(toy_app([0] * 5, step=step), 5), 4))
    assert found == pytest.approx(4)
    assert any("cluster 0 counts with less in round 3: their" in line for line in logged(caplog))


def test_sums_that_come_to_nothing_do_not_tell_what_one_client_sent(caplog, monkeypatch):
    """Client 4 adds to its weight alone: the sum is refused, although it can be read."""

    def heavier(arrays):
        arrays["masked"][0] += np.uint64(1000)

    def unmasked(group, places, secrets, updates):
        read.append([group.members[place] for place in places])
        return unmask(group, places, secrets, updates)

    read, unmask = [], Group.unmasked
    monkeypatch.setattr(Group, "unmasked", unmasked)
    spoil = {
        (protocol.TRAIN, 4): in_rounds(1, 2, 3, spoil=with_arrays(heavier)),
        (protocol.TRAIN, 0): in_rounds(2),
    }
    run(optimum([0] * 5), grid_of(spoil, [0] * 5), 4)
    # Not those of round 2, which are all but client 0. In round 4 the sum is right.
    assert read == [[0, 1, 2, 3, 4]] * 3
    lost = "cluster 0 keeps its model in round 2: beside a sum that came to nothing, theirs would"
    assert any(line.startswith(lost) for line in logged(caplog))


@pytest.mark.parametrize("clients", [5, 12])
def test_a_sum_that_nobody_read_keeps_no_others_from_being_read(clients):
    """In round 2 too few reveal shares; from round 3 on client 0 has left for good."""
    tasks = [0] * clients
    spoil = {(UNMASK, client): in_rounds(2) for client in range(1, clients)}
    grid = Visits(toy_app(tasks, spoil), clients, {0: {3, 4}})
    (found,) = weights(run(optimum(tasks), grid, 4))
    mean = [np.mean(range(1 + gone, clients + 1)) for gone in (0, 1, 1)]
    assert found == pytest.approx(sum(mean))


def test_whoever_stretches_what_is_usual_round_by_round_is_found():
    """Client 7 makes each mean 3.9 times as long as the median of those before it, backwards."""
    lengths = []

    def step(client, task):
        if client != 7:
            return (1, 0)
        lengths.append(3.9 * np.median(lengths) if lengths else 1.0)
        return (1 if len(lengths) == 1 else -(12 * min(lengths[-1], 20) + 11), 0)

    strategy = optimum([0] * 12)
    run(strategy, LocalGrid(toy_app([0] * 12, step=step), 12), 12)
    assert sorted(strategy.reports[-1].left_out_of_sums) == [7]


TWELVE = [0] * 12


def usual(client, task):
    return (client % 3 + 1, 0)


LIARS = (2, 7)


@pytest.mark.parametrize(
    ("stage", "spoil"),
    sampled(
        [
            (KEYS, shortened("keys")),
            (SHARES, shortened("shares")),
            (SHARES, garbage("shares")),
            (SHARES, garbage("digests")),
            (protocol.TRAIN, shortened("masked")),
            (UNMASK, garbage("shares")),
            (UNMASK, shortened("shares")),
        ],
        2,
    ),
)
def test_who_sends_what_cannot_be_right_is_left_out_after_its_first_round(stage, spoil, caplog):
    app = toy_app(TWELVE, {(stage, client): spoil for client in LIARS}, usual)
    strategy = optimum(TWELVE)
    run(strategy, LocalGrid(app, 12), 2)
    assert [sorted(report.left_out_of_sums) for report in strategy.reports] == [list(LIARS)] * 2
    for client in LIARS:
        assert any(line.startswith(f"client {client} takes part in no") for line in logged(caplog))


def test_garbage_under_masks_is_searched_for_and_the_others_learn_meanwhile(caplog):
    app = toy_app(TWELVE, {(protocol.TRAIN, c): garbage("masked") for c in LIARS}, usual)
    strategy = optimum(TWELVE)
    (found,) = weights(run(strategy, LocalGrid(app, 12), 10))
    assert sorted(strategy.reports[-1].left_out_of_sums) == list(LIARS)
    assert 17 <= found <= 23  # honest clients move the weight by two in a round on average
    assert any("searched for by sums over parts of the cluster" in line for line in logged(caplog))


def test_a_plausible_but_huge_update_is_found_under_its_mask(caplog):
    def step(client, task):
        return (200.0, 0) if client == 7 else usual(client, task)

    strategy = optimum(TWELVE)
    (found,) = weights(run(strategy, LocalGrid(toy_app(TWELVE, step=step), 12), 6))
    assert sorted(strategy.reports[-1].left_out_of_sums) == [7]
    assert 10 <= found <= 14
    assert any(
        "their mean update is many times as long as usual" in line for line in logged(caplog)
    )


def test_shares_do_not_say_when_they_were_made():
    """A clock that is wrong would tell others in whose part they are, in each round anew."""
    times = set()

    def note(arrays):
        times.update(base64.urlsafe_b64decode(row.tobytes())[1:9] for row in arrays["shares"])

    run(optimum(), grid_of({(SHARES, client): with_arrays(note) for client in range(8)}))
    assert times == {bytes(8)}


def test_who_is_left_out_does_not_make_the_others_fewer():
    """A quarter of twelve are three, and of the ten that are left, two: no sum in any round."""
    app = toy_app(TWELVE, {(KEYS, client): shortened("keys") for client in LIARS}, usual)
    strategy = optimum(TWELVE, fraction_train=0.25)
    grid = LocalGrid(app, 12)
    run(strategy, grid, 20)
    assert sorted(strategy.reports[-1].left_out_of_sums) == list(LIARS)
    assert sum(message.metadata.group_id == "20" for message in trainings(grid)) == 3


def test_who_is_left_out_does_not_end_the_run_while_the_others_are_away():
    spoil = {(KEYS, 6): shortened("keys")}
    grid = Visits(toy_app([0] * 7, spoil), 7, {client: [2] for client in range(6)})
    assert weights(run(optimum([0] * 7), grid, 3)) == pytest.approx([2 * 3.5])


def test_an_update_of_usual_length_is_believed_whatever_its_direction():
    """It is a limit, and docs/robustness.md says so: only who sees updates sees it."""

    def step(client, task):
        return (-22.0, 0) if client == 7 else usual(client, task)

    strategy = optimum(TWELVE)
    (found,) = weights(run(strategy, LocalGrid(toy_app(TWELVE, step=step), 12), 3))
    assert found == pytest.approx(0, abs=0.5)  # eleven honest ones moved by two in a round
    assert not strategy.reports[-1].left_out_of_sums


def test_parts_come_to_the_mean_of_all():
    tasks = [0] * 8
    strategy = optimum(tasks, weighted_mean=True)
    grid = LocalGrid(toy_app(tasks, step=usual), 8)
    (found,) = weights(run(strategy, grid))
    assert {len(m.content[protocol.CONFIG][protocol.PEERS]) for m in trainings(grid)} == {4}
    counts = np.arange(1, 9)
    moved = [usual(client, 0)[0] for client in range(8)]
    assert found == pytest.approx(np.average(moved, weights=counts))
    assert strategy.reports[-1].train_loss == pytest.approx(3.5)


def trainings(grid):
    return [m for m in grid.sent if m.metadata.message_type == protocol.TRAIN]


def test_who_is_left_out_is_still_tested_and_may_leave_a_cluster_without_a_sum(caplog):
    strategy = optimum()
    grid = grid_of({(SHARES, 6): shortened("shares")})
    assert weights(run(strategy, grid, 2)) == pytest.approx([6, 0])  # of three, two are left
    assert any("2 of its clients take part, and it takes 3" in line for line in logged(caplog))
    assert sorted(strategy.reports[-1].tested) == list(range(8))


def test_a_secret_that_is_not_that_of_the_public_key_is_found(monkeypatch, caplog):
    """Client 1 shares something else, in shares that fit each other, and drops out."""
    advertised, another = [], bytes(31) + b"\7"

    def note(message, context, answer):
        advertised.append(context.state.config_records[STATE]["mask-secret"])
        return answer

    monkeypatch.setattr(
        "clients.secure_aggregation.create_shares",
        lambda secret, *n: create_shares(another if secret in advertised else secret, *n),
    )
    grid = grid_of({(KEYS, 1): note, (protocol.TRAIN, 1): fail})
    assert weights(run(optimum(), grid)) == pytest.approx([0, 7])
    assert any("client 1 shared something else" in line for line in logged(caplog))
    said = "client 1 takes part in no secure sum of this run any more: it shared something else"
    assert any(line.startswith(said) for line in logged(caplog))


def test_the_steps_of_a_round_have_its_deadline_and_not_that_of_the_pre_round():
    grid = grid_of()
    strategy = optimum(pre_round_timeout=7)
    strategy.start(grid, MODEL, 1, timeout=50, train_config=ConfigRecord({protocol.SEED: 0}))
    seconds = {m.metadata.message_type: m.metadata.ttl for m in grid.sent}
    assert seconds.pop(protocol.query(protocol.DESCRIBE)) == 7
    assert seconds == dict.fromkeys((KEYS, SHARES, protocol.TRAIN, UNMASK, protocol.EVALUATE), 50)


def test_the_same_to_the_last_bit_whatever_the_keys():
    first, second = (run(optimum(), grid_of(), 2).arrays for _ in range(2))
    assert protocol.to_arrays(first)["0/w"].tobytes() == protocol.to_arrays(second)["0/w"].tobytes()


def test_bytes_are_counted_as_training():
    strategy = Single(secure_aggregation=True)
    run(strategy, grid_of(tasks=[0] * 4))
    traffic = strategy.training.train_traffic
    n, m = 4, 4 + 3 - 1  # clients; words: a head of three, two weights, one counter
    up = n * (2 * 215 + n * 248 + 2 * n * 32 + 8 * m + n * 52)
    assert up < traffic.up < up + n * 4 * 200  # Flower's headers of arrays


def test_nobody_counts_five_times_where_clients_count_alike(caplog):
    def heavy(arrays):
        arrays[protocol.MASKED][0] += np.uint64(4)  # under its mask, the weight is 5

    grid = grid_of({(protocol.TRAIN, 0): with_arrays(heavy)})
    assert weights(run(optimum(), grid)) == [0, 7]
    assert any("does not add up to updates" in line for line in logged(caplog))
