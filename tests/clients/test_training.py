import math

import pytest
import torch
from sklearn.metrics import f1_score, recall_score
from torch import nn
from torch.nn import functional as F  # noqa: N812

from clients.settings import TrainingSettings
from clients.training.losses import each_loss
from clients.training.train import (
    OtherTest,
    Scores,
    UsualTraining,
    as_pixels,
    evaluate,
    evaluate_both,
    split_batches,
    train,
)


def data(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return images, (images.float().mean(dim=(1, 2, 3)) > 127.5).long()


def linear(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


def run(settings, seed=0):
    model = linear()
    loss = train(model, *data(), settings, torch.Generator().manual_seed(seed))
    return model.state_dict(), loss


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_same_as_a_plain_loop(optimizer):
    settings = TrainingSettings(
        optimizer, 0.05, momentum=0.9, weight_decay=0.01, batch_size=16, local_epochs=3
    )
    state, loss = run(settings)
    reference = linear()
    parameters = reference.parameters()
    plain = (
        torch.optim.Adam(parameters, 0.05, weight_decay=0.01)
        if optimizer == "adam"
        else torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=0.01)
    )
    (images, labels), generator = data(), torch.Generator().manual_seed(0)
    losses = []
    for _ in range(3):
        losses = []
        order = torch.randperm(40, generator=generator)
        for start in range(0, 40, 16):
            batch = order[start : start + 16]
            plain.zero_grad()
            each = nn.functional.cross_entropy(
                reference(as_pixels(images)[batch]), labels[batch], reduction="none"
            )
            each.mean().backward()
            plain.step()
            losses.append(each.detach())
    assert loss == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)
    for name, value in reference.state_dict().items():
        assert torch.allclose(state[name], value, atol=1e-6)


def test_a_clients_seed_alone_decides_and_the_global_generator_goes_on_where_it_was():
    """With dropout, on any worker, whatever another client has left there."""

    def trained(seed, before):
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=False), nn.Dropout(0.5))
        nn.init.ones_(model[1].weight)
        torch.manual_seed(before)
        expected = torch.rand(1)
        torch.manual_seed(before)
        UsualTraining(data, TrainingSettings, seed)(model)
        assert torch.equal(torch.rand(1), expected)
        return model[1].weight.detach()

    with torch.random.fork_rng():
        assert torch.equal(trained(7, 1), trained(7, 2))
        assert not torch.equal(trained(7, 1), trained(8, 1))


def test_every_image_is_used_once_an_epoch_even_in_a_last_small_batch():
    seen = []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 2)

        def forward(self, x):
            seen.extend((255 * x).round().int().flatten().tolist())
            return self.layer(x.flatten(1))

    images = torch.arange(7, dtype=torch.uint8).reshape(7, 1, 1, 1)
    settings = TrainingSettings(batch_size=3, local_epochs=2)
    train(Spy(), images, torch.zeros(7, dtype=torch.long), settings, torch.Generator())
    assert sorted(seen[:7]) == sorted(seen[7:]) == list(range(7))
    assert seen[:7] != seen[7:]


class Says(nn.Module):
    """Takes an image's first pixel for its class, one of four."""

    def forward(self, x):
        return 100 * nn.functional.one_hot((255 * x[:, 0, 0, 0]).round().long(), 4).float()


@pytest.mark.parametrize(("seed", "classes"), [(0, 4), (1, 4), (2, 2)])
def test_scores_are_those_of_scikit_learn_and_do_not_depend_on_batches(seed, classes):
    """Of two classes that have samples, the others are only guessed: they have no score."""
    generator = torch.Generator().manual_seed(seed)
    # More than are looked at together.
    guesses, labels = (torch.randint(0, n, (600,), generator=generator) for n in (4, classes))
    guesses[:300] = labels[:300]
    found = evaluate(Says(), guesses.to(torch.uint8).reshape(-1, 1, 1, 1), labels)
    same = {"labels": labels.unique(), "average": "macro", "zero_division": 0}
    assert found.macro_f1 == pytest.approx(f1_score(labels, guesses, **same))
    assert found.balanced_accuracy == pytest.approx(recall_score(labels, guesses, **same))
    assert found.accuracy == float((guesses == labels).double().mean())
    assert isinstance(found, Scores)


def test_by_hand_a_second_test_sees_what_it_shares_once():
    seen = []

    class Counts(Says):
        def forward(self, x):
            seen.extend((255 * x[:, 0, 0, 0]).round().int().tolist())
            return super().forward(x)

    def pixels(*values):
        return torch.tensor(values, dtype=torch.uint8).reshape(-1, 1, 1, 1)

    # First test: 0 0 1 1, of which the last is wrong. Second: its images 2 and 3, then a 2, right.
    images, labels = pixels(0, 0, 1, 1), torch.tensor([0, 0, 1, 2])
    other = OtherTest(torch.tensor([2, 3]), pixels(2), torch.tensor([2]))
    first, second = evaluate_both(Counts(), images, labels, other)
    assert seen == [0, 0, 1, 1, 2]
    assert first == evaluate(Says(), images, labels)
    assert second == evaluate(Says(), pixels(1, 1, 2), torch.tensor([1, 2, 2]))
    assert (first.accuracy, second.accuracy) == (3 / 4, 2 / 3)
    inside = OtherTest(torch.tensor([3]), images[:0], labels[:0])
    assert evaluate_both(Says(), images, labels, inside)[1].accuracy == 0
    loss = "torch.nn.functional:multi_margin_loss"
    first, second = evaluate_both(Says(), images, labels, other, loss)
    assert first == evaluate(Says(), images, labels, loss=loss)
    # The wrong one of three is 1 + 100, 1 and 1 short of its margins, a mean over four classes.
    assert second.loss == pytest.approx((1 + 100 + 1 + 1) / 4 / 3, rel=1e-5)
    assert second == evaluate(Says(), pixels(1, 1, 2), torch.tensor([1, 2, 2]), loss=loss)


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(33, 32, [33]), (65, 32, [32, 33]), (34, 32, [32, 2]), (3, 1, [1, 1, 1]), (1, 32, [1])],
)
def test_a_last_batch_of_one_sample_joins_its_neighbour(count, size, expected):
    batches = split_batches(torch.arange(count), size)
    assert [len(batch) for batch in batches] == expected
    assert torch.cat(batches).tolist() == list(range(count))


def halved_above_a_half(outputs, labels):
    loss = F.cross_entropy(outputs, labels)
    return loss / 2 if loss.item() > 0.5 else loss


def test_by_hand_the_loss_of_each_sample_may_depend_on_its_value():
    """Probabilities are 1/2 and 3/4: losses are log 2, which is halved, and log 4/3."""
    outputs = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]], requires_grad=True)
    path = f"{__name__}:{halved_above_a_half.__name__}"
    found = each_loss(path, outputs, torch.tensor([0, 1]))
    assert found.tolist() == pytest.approx([math.log(2) / 2, math.log(4 / 3)])
    found.sum().backward()
    assert outputs.grad.flatten().tolist() == pytest.approx([-0.25, 0.25, 0.25, -0.25])
