"""What clients optimise, step by step: numbers worked out by hand.

One white pixel, two classes: with weight and bias (w, -w) the logits are (2w, -2w), so p, the
probability of the right class, is 1/(1 + exp(-4w)), and the gradient of w is p - 1.
"""

from collections import OrderedDict
from math import exp

import pytest
import torch
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from clients.handlers import answer_training
from clients.training.local_training import (
    load_tested_model,
    read_objective,
    train_by_objective,
    whole_model,
)
from fl_core.messages import protocol
from fl_core.models.layers import with_layer
from fl_core.objectives.known import OBJECTIVES
from fl_core.objectives.objective import no_term
from tests.local_messages import context, message, personal, sgd, two_numbers
from tests.objective_app import Small
from tests.objective_app import two_layers as a_model


def gradient(w):
    return 1 / (1 + exp(-4 * w)) - 1


def weight(arrays):
    return float(arrays["output.weight"].numpy()[0, 0])


def ask(value, round=1, kind=protocol.TRAIN, **entries):
    return message(two_numbers(value), round=round, kind=kind, **entries)


def trained(asked, state, fit, model=None):
    shared, loss = train_by_objective(asked, personal(asked, state), model or two_numbers(9.0), fit)
    return shared, loss


def weight_tested(asked, state, fit=None):
    """Return the weight of the model that a client tests."""
    model = two_numbers(9.0)
    load_tested_model(asked, personal(asked, state), model, fit)
    return weight(ArrayRecord(model.state_dict()))


def test_every_objective_is_what_the_server_says_of_it():
    for name in ("ditto", "prox"):
        entries = OBJECTIVES[name](0.25).message_entries(["output.weight"])
        assert read_objective(message(two_numbers(), **entries)) == OBJECTIVES[name](0.25)


def test_prox_by_hand():
    """The first step is plain; the second is pulled back by μ times the way so far."""
    start, first = 0.1, 0.1 - 0.1 * gradient(0.1)
    second = first - 0.1 * (gradient(first) + 3 * (first - start))
    asked = message(two_numbers(start), objective="prox", prox_weight=3.0)
    shared, _ = trained(asked, context(), sgd(2))
    assert weight(shared) == pytest.approx(second, abs=1e-6)
    plain, _ = trained(message(two_numbers(start)), context(), sgd(2))
    assert weight(plain) == pytest.approx(first - 0.1 * gradient(first), abs=1e-6)


def test_ditto_by_hand():
    """Round 1: v starts as w; round 2: v goes on from where it was, pulled to the new w."""
    client, rate, lam = context(), 0.1, 2.0
    asked = message(two_numbers(0.2), objective="ditto", ditto_weight=lam)
    shared, _ = trained(asked, client, sgd())
    v = 0.2 - rate * gradient(0.2)  # not pulled yet: it is where w is
    assert weight(shared) == pytest.approx(v, abs=1e-6)
    assert weight(personal(message(two_numbers(), round=2), client).load()) == pytest.approx(v)

    asked = message(two_numbers(-0.3), round=2, objective="ditto", ditto_weight=lam)
    shared, _ = trained(asked, client, sgd())
    assert weight(shared) == pytest.approx(-0.3 - rate * gradient(-0.3), abs=1e-6)
    v -= rate * (gradient(v) + lam * (v + 0.3))
    asked = ask(0.7, 2, protocol.EVALUATE, objective="ditto", ditto_weight=lam)
    assert weight_tested(asked, client) == pytest.approx(v, abs=1e-6)


FINE_TUNE = {"objective": "fine-tune", "fine_tune_epochs": 2}
APFL = {"objective": "apfl", "apfl_alpha": 0.25, "apfl_adaptive": True}
PFEDME = {"objective": "pfedme", "pfedme_weight": 2.0, "pfedme_steps": 2, "pfedme_rate": 0.05}


@pytest.mark.parametrize("entries", [{"objective": "ditto", "ditto_weight": 1.0}, APFL, PFEDME])
def test_a_client_that_never_trained_is_tested_with_what_it_was_sent(entries):
    assert weight_tested(ask(0.7, kind=protocol.EVALUATE, **entries), context()) == pytest.approx(
        0.7
    )


@pytest.mark.parametrize(
    ("entries", "steps"),
    [
        (FINE_TUNE, 2),
        ({"objective": "after-training"}, 1),  # as in a round
    ],
)
def test_a_copy_is_trained_further_to_be_tested_by_hand(entries, steps):
    client = context()
    shared, _ = trained(ask(0.1, **entries), client, sgd())
    first = 0.1 - 0.1 * gradient(0.1)
    assert weight(shared) == pytest.approx(first, abs=1e-6)
    expected = first
    for _ in range(steps):
        expected -= 0.1 * gradient(expected)
    asked = ask(first, kind=protocol.EVALUATE, **entries)
    assert weight_tested(asked, client, sgd()) == pytest.approx(expected, abs=1e-6)
    assert weight(asked.content["arrays"]) == pytest.approx(first)
    assert not len(client.state)  # nothing of it reaches the next round


def test_apfl_by_hand():
    """Round 1: v starts as w; round 2: α moves at the first of two steps."""
    client, rate, alpha = context(), 0.1, 0.25
    shared, _ = trained(ask(0.2, **APFL), client, sgd())
    v = 0.2 - rate * alpha * gradient(0.2)
    assert weight(shared) == pytest.approx(0.2 - rate * gradient(0.2), abs=1e-6)
    w = -0.3
    shared, _ = trained(ask(w, 2, **APFL), client, sgd(2))
    for step in range(2):
        slope = gradient(alpha * v + (1 - alpha) * w)
        before, moved = alpha, 4 * (v - w) * slope  # weight and bias of two classes
        v, w = v - rate * before * slope, w - rate * gradient(w)
        alpha = alpha - rate * moved if step == 0 else alpha
    assert 0.25 < alpha < 1
    assert weight(shared) == pytest.approx(w, abs=1e-6)
    found = weight_tested(ask(0.7, 2, protocol.EVALUATE, **APFL), client)
    assert found == pytest.approx(alpha * v + (1 - alpha) * 0.7, abs=1e-6)


def test_pfedme_by_hand():
    client, w, theta = context(), 0.2, 0.2
    shared, _ = trained(ask(0.2, **PFEDME), client, sgd(2))
    for _ in range(2):  # batches
        for _ in range(2):  # steps
            theta -= 0.05 * (gradient(theta) + 2 * (theta - w))
        w -= 0.1 * 2 * (w - theta)
    assert weight(shared) == pytest.approx(w, abs=1e-6)
    asked = ask(0.7, kind=protocol.EVALUATE, **PFEDME)
    assert weight_tested(asked, client) == pytest.approx(theta, abs=1e-6)


@pytest.mark.parametrize("entries", [{}, APFL, PFEDME | {"pfedme_weight": 1e-9}])
def test_the_loss_is_that_of_the_last_epoch(entries):
    """Of two epochs of one batch: the loss where the first one has led, not the mean of both."""
    of_one = trained(ask(0.2, **entries), context(), sgd())[1]
    of_two = trained(ask(0.2, **entries), context(), sgd(2))[1]
    assert of_two < of_one
    if "pfedme_steps" in entries:
        return  # its steps do not end where w does
    moved = 0.2 - 0.1 * gradient(0.2)
    assert of_two == pytest.approx(trained(ask(moved, **entries), context(), sgd())[1], abs=1e-6)


def test_scaffold_by_hand():
    """Two steps with c, from 0.3: c_i becomes the mean gradient, and c + Δc_i goes back."""
    client, c, own, w = context(), 0.3, 0.0, 0.1
    for number in (1, 2):
        beside = with_layer(protocol.BESIDE, two_numbers(c).state_dict())
        sent = ArrayRecord({**two_numbers(w).state_dict(), **beside})
        asked = message(sent, round=number, objective="scaffold")
        shared, _ = trained(asked, client, sgd(2))
        slopes = []
        for _ in range(2):
            slopes.append(gradient(w))
            w -= 0.1 * (slopes[-1] + c - own)
        new = sum(slopes) / 2
        c, own = c + new - own, new
        assert weight(shared) == pytest.approx(w, abs=1e-6)
        back = shared[f"{protocol.BESIDE}.output.weight"].numpy()[0, 0]
        assert back == pytest.approx(c, abs=1e-6)
    with pytest.raises(ValueError, match="momentum: set optimizer=sgd momentum=0"):
        trained(asked, context(), sgd(momentum=0.9))


def test_fedamp_by_hand():
    """Round 2 goes on from the stored model, pulled to the received one; it is sent and tested."""
    client, entries = context(), {"objective": "fedamp", "fedamp_weight": 3.0}
    trained(ask(0.2, **entries), client, sgd())
    w = 0.2 - 0.1 * gradient(0.2)
    shared, _ = trained(ask(-0.3, 2, **entries), client, sgd())
    w -= 0.1 * (gradient(w) + 3 * (w + 0.3))
    assert weight(shared) == pytest.approx(w, abs=1e-6)
    found = weight_tested(ask(0.7, 2, protocol.EVALUATE, **entries), client)
    assert found == pytest.approx(w, abs=1e-6)


def test_lcfed_by_hand():
    """Two steps from Ω = 0.1 with Φ = 0.5, which is not sent back."""
    entries = {"lcfed_cluster_weight": 3.0, "lcfed_global_weight": 2.0}
    beside = with_layer(protocol.BESIDE, two_numbers(0.5).state_dict())
    sent = ArrayRecord({**two_numbers(0.1).state_dict(), **beside})
    shared, _ = trained(message(sent, objective="lcfed", **entries), context(), sgd(2))
    w = 0.1
    for _ in range(2):
        w -= 0.1 * (gradient(w) + 3 * (w - 0.1) + 2 * (w - 0.5))
    assert weight(shared) == pytest.approx(w, abs=1e-6)
    assert not any(protocol.BESIDE in name for name in shared)


def test_a_loop_of_its_own_needs_batches():
    with pytest.raises(ValueError, match="trains by a loop of its own: hand train_by_objective a"):
        trained(ask(0.1, **APFL), context(), lambda model, add_term, epochs: 0.0)


def two_layers():
    torch.manual_seed(0)
    layers = OrderedDict(flatten=nn.Flatten(), body=nn.Linear(1, 3), output=nn.Linear(3, 2))
    return nn.Sequential(layers)


def parted(model, layer="output."):
    state = model.state_dict()
    shared = {n: a for n, a in state.items() if not n.startswith(layer)}
    return ArrayRecord(shared), ArrayRecord({n: a for n, a in state.items() if n not in shared})


def test_private_layers_go_in_and_do_not_come_out():
    shared, private = parted(two_layers())
    client, entries = context(), {"objective": "private-layers", "private_layers": ["output"]}
    answer, _ = trained(message(shared, private=private, **entries), client, sgd(), two_layers())
    assert list(answer) == ["body.weight", "body.bias"]
    stored = personal(message(shared, round=2, **entries), client).load()
    assert list(stored) == ["output.weight", "output.bias"]
    alone, _ = trained(message(two_layers()), context(), sgd(), two_layers())
    for name in alone:  # all are trained together, as without an objective
        found = (answer if name in answer else stored)[name].numpy()
        assert found.tobytes() == alone[name].numpy().tobytes()

    # It continues with its layers, even if it is sent first ones again.
    again = message(shared, round=2, private=private, **entries)
    whole = whole_model(again, personal(again, client), shared)
    assert whole["output.weight"].numpy().tobytes() == stored["output.weight"].numpy().tobytes()
    assert stored["output.weight"].numpy().tobytes() != private["output.weight"].numpy().tobytes()


def test_fedrep_trains_the_head_and_then_the_body():
    """Which parameters move when, and how often: also with momentum and weight decay."""
    seen = []
    step = sgd(momentum=0.9, weight_decay=0.5)

    def fit(model, add_term=no_term, epochs=None):
        before = {n: t.clone() for n, t in model.state_dict().items()}
        loss = step(model, add_term, epochs)
        moved = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
        seen.append((sorted(moved), epochs))
        return loss

    shared, private = parted(two_layers())
    entries = {"private_layers": ["output"], "head_epochs": 4, "body_epochs": 2}
    model = two_layers()
    asked = message(shared, private=private, objective="private-head", **entries)
    answer, _ = trained(asked, context(), fit, model)
    body, head = ["body.bias", "body.weight"], ["output.bias", "output.weight"]
    assert seen == [(head, 4), (body, 2)]
    assert sorted(answer) == body
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_an_objective_that_only_the_server_knows_is_refused():
    with pytest.raises(ValueError, match='objective "meta", but this client knows plain, prox'):
        read_objective(message(two_numbers(), objective="meta"))


class Alike(Small):
    """A client with the samples of all others."""

    def training_data(self):
        images = torch.arange(96, dtype=torch.uint8).reshape(24, 1, 2, 2)
        return images, torch.arange(24) % 2

    test_data = training_data


@pytest.mark.parametrize("kind", [protocol.TRAIN, protocol.EVALUATE])
def test_training_and_fine_tuning_draw_by_seed_round_and_client_alone(kind):
    app = ClientApp()
    answer_training(app, Alike)

    def result(seed=0, round=1, client=0):
        asked = message(a_model(), round=round, kind=kind, seed=seed, **FINE_TUNE)
        node = Context(1, 1, {"partition-id": client}, RecordDict(), {})
        return app(asked, node).content[protocol.METRICS][protocol.LOSS]

    others = [result(seed=1), result(round=2), result(client=1)]
    assert result() == result()
    assert len({result(), *others}) == 4
