"""Secure aggregation between a strategy and clients in this process; toy_app has the numbers."""

import itertools
import logging

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from flwr.app import Array, ConfigRecord
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_separate
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from clients.secure_aggregation import STATE
from fl_core import masking
from fl_core.messages import protocol
from strategies import make_strategy
from strategies.secure_aggregation import ClusterSum, bounded_norm
from tests.local_grid import LocalGrid, Visits
from tests.samples import sampled
from tests.toy_app import STRATEGIES, fail, in_rounds, run, toy_app, weights, with_arrays

TWO_TASKS = [0, 0, 0, 0, 0, 1, 1, 1]  # clusters of five and three clients
KEYS, SHARES, UNMASK = (
    protocol.query(action)
    for action in (protocol.PUBLIC_KEYS, protocol.SHARE_KEYS, protocol.UNMASK)
)

pytestmark = pytest.mark.usefixtures("plane_without_umap")


def optimum(tasks=TWO_TASKS, **options):
    return make_strategy("optimum", dict(enumerate(tasks)), secure_aggregation=True, **options)


def grid_of(corrupt=None, tasks=TWO_TASKS, kind=LocalGrid):
    return kind(toy_app(tasks, corrupt), len(tasks))


def logged(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


REFUSED = (
    *("mt-hfl", "flt", "flt-graph", "fedhc", "ifca", "ifca-pfl", "fedsem", "cfl", "local"),
    *("fedsem-flt", "fedclust", "fedgroup"),
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
        "optimum": lambda **options: make_strategy("optimum", dict(enumerate(tasks)), **options),
        "random": lambda **options: make_strategy("random", [5, 4], **options),
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
    assert not other.samples  # the server does not know


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
        assert any(
            line.startswith((f"client {client} failed ", f"client {client} could not"))
            for line in logged(caplog)
        )
    # They are back in the next round.
    grid = grid_of({(stage, client): in_rounds(1) for client in gone})
    assert weights(run(strategy, grid, 2)) == pytest.approx([mean + 3, 14])


@pytest.mark.parametrize(
    ("stage", "gone", "reason"),
    [
        (KEYS, {0, 1, 2}, "2 of its clients sent keys, but 3 are needed"),
        (SHARES, {0, 1, 2}, "2 of its clients sent shares, but 3 are needed"),
        (protocol.TRAIN, {0, 1, 2}, "2 of its clients sent an update, but 3 are needed"),
        (UNMASK, {0, 1, 2}, "of client 0's secret 2 valid shares came back, but 3 are needed"),
        (UNMASK, {0, 1, 2, 3, 4}, "of client 0's secret 0 valid shares came back"),
    ],
)
def test_a_cluster_with_too_few_left_retains_its_model_and_the_log_says_why(
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
    assert any("2 of its clients take part, but 3 are needed" in line for line in logged(caplog))
    for few in ([0, 0, 1, 1], [0, 0]):
        with pytest.raises(RuntimeError, match="no cluster has 3 clients"):
            run(optimum(few), grid_of(tasks=few))


class Server(LocalGrid):
    """Records what it is sent and what clients store, and changes what it asks the first cluster.

    `change` is from message type to what is done to a message.
    """

    def __init__(self, app, num_clients, change=None):
        super().__init__(app, num_clients)
        self.received, self.stored, self.change = {}, {}, change or {}

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for message in messages:
            kind, client = (
                message.metadata.message_type,
                self.client_at(message.metadata.dst_node_id),
            )
            if kind == UNMASK:  # before they reveal anything
                state = self.contexts[message.metadata.dst_node_id].state
                self.stored[client] = dict(state.config_records[STATE])
            if kind in self.change and TWO_TASKS[client] == 0:
                self.change[kind](message)
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for message in replies:
            client = self.client_at(message.metadata.src_node_id)
            if not message.has_error():
                self.received[message.metadata.message_type, client] = message.content
        return replies

    def client_at(self, node):
        return self.contexts[node].node_config["partition-id"]

    def arrays(self, kind, client):
        return protocol.to_arrays(self.received[kind, client].array_records[protocol.ARRAYS])


def test_the_server_is_sent_no_update_loss_or_weight():
    grid = grid_of(kind=Server)
    sums = []
    for _ in range(2):
        run(optimum(weighted_mean=True), grid)
        sent = {c: grid.received[protocol.TRAIN, c] for c in range(8)}
        assert all(set(content) == {protocol.ARRAYS} for content in sent.values())
        words = [grid.arrays(protocol.TRAIN, c)[protocol.MASKED] for c in range(5)]
        # Numbers of an update are below 2⁶³/clients in size; these are spread over all there are.
        sums.append(np.concatenate(words))
    assert (sums[0] != sums[1]).all()
    assert 0.2 < np.mean(np.concatenate(sums) > 2**63) < 0.8


def held_by(grid, clients, victim, kind):
    """Return the shares of a victim's secret that a coalition of clients and the server holds.

    Each client's keys for shares are private; the ciphertexts went through the server.
    """
    found = []
    for client in clients:
        key = grid.stored[client]["share-keys"][victim]
        ciphertext = grid.arrays(SHARES, victim)[protocol.SHARES][client].tobytes()
        found.append(share_keys_plaintext_separate(decrypt(key, ciphertext))[2 + kind])
    return found


def test_a_coalition_below_the_threshold_learns_no_secret():
    grid = grid_of(kind=Server)
    run(optimum(), grid)
    victim = 4
    seed = grid.stored[victim]["seed"]
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
        # Three would have found this secret, since its public key is known; two do not.
        assert of_key != combine_shares(held_by(grid, [0, 1, 2], victim, 1))


def set_places(**places):
    def change(message):
        record = message.content.array_records[protocol.ARRAYS]
        for name, value in places.items():
            record[name] = Array(np.array(value, np.int64))

    return change


def with_config(**values):
    def change(message):
        config = dict(message.content.config_records[protocol.CONFIG])
        message.content[protocol.CONFIG] = ConfigRecord({**config, **values})

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
        (UNMASK, set_places(survivors=[0, 1, -1], dropped=[]), "shares for a sum of 3 of"),
        (UNMASK, set_places(survivors=[0, 1, 5], dropped=[]), "shares for a sum of 3 of"),
        (UNMASK, set_places(survivors=[0, 1, 1], dropped=[]), "shares for a sum of 3 of"),
        (UNMASK, set_places(survivors=[0, 1, 2], dropped=[-1]), "shares for a sum of 3 of"),
        (protocol.TRAIN, with_config(peers=[0, 1]), "2 of 5 clients, which hides no update"),
        # -1 is the last one, too: the masks in common with it would cancel.
        (protocol.TRAIN, with_config(peers=[0, 4, -1]), "3 of 5 clients, which hides no update"),
        (protocol.TRAIN, with_config(peers=[0, 1, 1]), "3 of 5 clients, which hides no update"),
        (protocol.TRAIN, with_config(peers=[1, 2, 3]), "3 of 5 clients, which hides no update"),
        (SHARES, repeat_key, "sent the keys of 5 clients"),
        (SHARES, two_keys, "sent the keys of 2 clients"),
    ],
)
def test_a_client_refuses_what_would_give_somebody_away(stage, change, reason, caplog):
    grid = Server(toy_app(TWO_TASKS), 8, {stage: change})
    run(optimum(), grid)
    assert any(
        line.startswith(("client 0 failed", "client 0 could not")) and reason in line
        for line in logged(caplog)
    )
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


def noise_in(name, row=slice(None)):
    """Return a change of an array: random bits in it, or in a row."""

    def change(arrays):
        bits = np.random.default_rng(1).bytes(arrays[name].nbytes)
        noise = np.frombuffer(bits, arrays[name].dtype).reshape(arrays[name].shape)
        arrays[name][row] = noise[row]

    return change


def garbage(name, row=slice(None)):
    return with_arrays(noise_in(name, row))


def shortened(name):
    def change(arrays):
        arrays[name] = arrays[name][:1]

    return with_arrays(change)


# Client 1 sent client 0 what is no share, or client 0 says so: the server cannot tell.
UNREAD = (
    "client 0 failed at unmask in round 1: its shares of client 1 are not what was announced and "
    "are left out; either side may be at fault"
)


@pytest.mark.parametrize(
    ("stage", "corrupt", "mean", "named"),
    [
        (KEYS, garbage("keys"), 13 / 4, "client 1 failed at public_keys"),
        (KEYS, shortened("keys"), 13 / 4, "its keys are uint8 of shape (1, 215)"),
        (SHARES, shortened("shares"), 13 / 4, "client 1 failed at share_keys"),
        (SHARES, garbage("shares", 0), 3, UNREAD),
        (protocol.TRAIN, shortened("masked"), 13 / 4, "client 1 could not train in round 1"),
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
def test_garbage_of_one_client_is_named_and_survived(stage, corrupt, mean, named, caplog):
    assert weights(run(optimum(), grid_of({(stage, 1): corrupt}))) == pytest.approx([mean, 7])
    assert any(named in line for line in logged(caplog))


def same_twice(arrays):
    arrays["keys"][1] = arrays["keys"][0]


def of_another_kind(arrays):
    """An RSA key that is as long as one of ours."""
    key = rsa.RSAPublicNumbers(65537, 2**703 + 1).public_key()
    arrays["keys"][0] = np.frombuffer(public_key_to_bytes(key), np.uint8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (same_twice, "its two keys are the same"),
        (of_another_kind, "its keys are of an unsupported type"),
    ],
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
def test_shares_that_corrupt_a_sum_cost_one_round_and_their_client_all_others(name, caplog):
    strategy = optimum()
    found = run(strategy, grid_of({(SHARES, 1): garbage(name)}), 3)
    assert weights(found) == pytest.approx([2 * 13 / 4, 21])  # without client 1, after the first
    lost = "cluster 0 keeps its model in round 1: of client 1's secret 0 valid shares came back"
    assert any(line.startswith(lost) for line in logged(caplog))
    reason = "its secrets' shares are not what was announced"
    assert f"client 1 takes part in no secure sum of this run any more: {reason}" in logged(caplog)
    assert [report.left_out_of_sums for report in strategy.reports] == [{1: reason}] * 3


def heavier(arrays):
    """Add to a weight, under its mask: the sum is refused, although it can be read."""
    arrays[protocol.MASKED][0] += np.uint64(1000)


def garbage_in(*rounds, client=1, change=heavier):
    return {(protocol.TRAIN, client): in_rounds(*rounds, corrupt=with_arrays(change))}


def test_a_sum_that_fails_without_a_culprit_does_not_count_and_names_its_participants(caplog):
    strategy = optimum()
    assert weights(run(strategy, grid_of(garbage_in(1, 2)), 3)) == pytest.approx([3, 21])
    for number in (1, 2):
        assert any(
            line.startswith(
                f"cluster 0 keeps its model in round {number}: the sum over client 0, client 1, "
                "client 2, client 3, client 4 failed: the sum is not one of updates"
            )
            for line in logged(caplog)
        )
    assert not strategy.reports[-1].left_out_of_sums


@pytest.mark.parametrize("change", [heavier, noise_in(protocol.MASKED)])
def test_three_sums_in_a_row_that_fail_without_a_culprit_end_the_run(change):
    grid = grid_of(garbage_in(2, 3, 4, change=change))
    message = (
        r"^secure-aggregation is on, and 3 sums of cluster 0 in a row have failed\. The sum over "
        r"client 0, client 1, client 2, client 3, client 4 failed: .* set secure-aggregation to "
    )
    with pytest.raises(RuntimeError, match=message):
        run(optimum(), grid, 5)
    assert max(int(message.metadata.group_id) for message in trainings(grid)) == 4


def read_sums(monkeypatch):
    """Return a list to which the clients of each sum are added that is unmasked."""

    def unmasked(one, secrets):
        read.append(sorted(one.summed))
        return unmask(one, secrets)

    read, unmask = [], ClusterSum.unmasked
    monkeypatch.setattr(ClusterSum, "unmasked", unmasked)
    return read


def test_after_a_sum_that_is_not_right_none_over_others_is_read(caplog, monkeypatch):
    """Client 0 is away in round 2: the difference of both sums would be its update.

    In round 3 the model changes, so that client 0 may be away in round 4.
    """
    read = read_sums(monkeypatch)
    corrupt = garbage_in(1, client=4) | {(protocol.TRAIN, 0): in_rounds(2, 4)}
    assert weights(run(optimum([0] * 5), grid_of(corrupt, [0] * 5), 4)) == pytest.approx([6.5])
    assert read == [[0, 1, 2, 3, 4]] * 2 + [[1, 2, 3, 4]]
    lost = (
        "cluster 0 keeps its model in round 2: the sum over client 1, client 2, client 3, client 4 "
        "failed: the last sum was over other clients, and both may show a single update"
    )
    assert lost in logged(caplog)


TWELVE = [0] * 12


def usual(client, task):
    return (client % 3 + 1, 0)


def test_a_sum_that_is_far_too_long_counts_with_the_usual_norm(caplog):
    """A model that stayed would get the same updates again, perhaps over other clients."""

    def step(client, task):
        trained[client] += 1
        return (200.0 if (client, trained[client]) == (7, 3) else 2, 0)

    trained = dict.fromkeys(range(12), 0)
    strategy = optimum(TWELVE)
    (found,) = weights(run(strategy, LocalGrid(toy_app(TWELVE, step=step), 12), 4))
    assert found == pytest.approx(8)
    said = "the sum over cluster 0 counts with the usual norm in round 3: its norm is more than 4 "
    assert [line for line in logged(caplog) if line.startswith(said)]
    assert not strategy.reports[-1].left_out_of_sums


def bounded(norms):
    """Return with which norms sums count, one after another."""
    model, before, counted = {"w": np.zeros(1)}, [], []
    for norm in norms:
        total = masking.Total({"w": np.array([norm])}, num_clients=3, loss=None, norm=norm)
        found = bounded_norm(total, before, model)
        assert found.model["w"].tolist() == pytest.approx([found.norm])
        counted.append(found.norm)
    return counted


def test_norms_are_bounded_by_four_times_the_median_of_the_rounds_before():
    assert bounded([1, 4, 2, 8, 8.1]) == [1, 4, 2, 8, 8.1]  # medians 1, 2.5, 2, 3
    assert bounded([1, 4.1, 10.1]) == [1, 1, 2.5]  # 4.1 is noted as 4


LIARS = (2, 7)


def test_who_is_left_out_does_not_make_the_others_fewer():
    """A quarter of twelve are three, and of the ten that are left, two: no sum in any round."""
    app = toy_app(TWELVE, {(KEYS, client): shortened("keys") for client in LIARS}, usual)
    strategy = optimum(TWELVE, fraction_train=0.25)
    grid = LocalGrid(app, 12)
    run(strategy, grid, 20)
    assert sorted(strategy.reports[-1].left_out_of_sums) == list(LIARS)
    assert sum(message.metadata.group_id == "20" for message in trainings(grid)) == 3


def test_who_is_left_out_does_not_end_the_run_while_the_others_are_away():
    corrupt = {(KEYS, 6): shortened("keys")}
    grid = Visits(toy_app([0] * 7, corrupt), 7, {client: [2] for client in range(6)})
    assert weights(run(optimum([0] * 7), grid, 3)) == pytest.approx([2 * 3.5])


def trainings(grid):
    return [m for m in grid.sent if m.metadata.message_type == protocol.TRAIN]


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
    assert any("client 1 shared what is not a secret" in line for line in logged(caplog))
    said = "client 1 takes part in no secure sum of this run any more: what it shared is not"
    assert any(line.startswith(said) for line in logged(caplog))
