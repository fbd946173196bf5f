import pytest
import torch

from fl_core.data.settings import paper_model
from fl_core.models.build import build_model
from fl_core.models.layers import layers_of, named_layers, split


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("logistic-regression", (1, 28, 28), 784 * 10 + 10),
        ("mlp", (1, 28, 28), 784 * 200 + 200 + 200 * 10 + 10),
        ("mlp-32", (1, 28, 28), 784 * 32 + 32 + 32 * 10 + 10),
        # 6 and 16 channels, 5x5 kernels, 16*5*5 = 400 -> 120 -> 84 -> 10, by hand
        (
            "cnn",
            (3, 32, 32),
            (75 * 6 + 6) + (150 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10),
        ),
    ],
)
def test_sizes_are_the_papers(name, shape, count):
    model = build_model(name, shape, 10, seed=0)
    assert parameters(model) == count
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_the_cnn_with_norms_is_the_cnn_and_two_norms():
    """6 and 16 channels, each with a weight and a bias; one image is enough to train on."""
    shape = (1, 28, 28)
    model, plain = (build_model(name, shape, 10, seed=0) for name in ("cnn-norm", "cnn"))
    assert parameters(model) == parameters(plain) + 2 * (6 + 16)
    names = [name for name, _ in model.named_children()]
    assert [names.index(f"norm{n}") - names.index(f"conv{n}") for n in (1, 2)] == [1, 1]
    small = build_model("cnn-norm", (1, 16, 16), 10, seed=0).train()
    assert small(torch.rand(1, 1, 16, 16)).isfinite().all()


def test_images_too_small_for_the_cnn():
    with pytest.raises(ValueError, match=r"at least 16×16 pixels, but .* \(1, 8, 8\): use mlp"):
        build_model("cnn", (1, 8, 8), 10, seed=0)


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    torch.manual_seed(1)
    untouched = torch.rand(3)
    torch.manual_seed(1)
    first = build_model("mlp", (1, 28, 28), 10, seed=4).state_dict()
    assert torch.equal(torch.rand(3), untouched)
    same = build_model("mlp", (1, 28, 28), 10, seed=4).state_dict()
    other = build_model("mlp", (1, 28, 28), 10, seed=5).state_dict()
    assert all(torch.equal(first[k], same[k]) for k in first)
    assert not torch.equal(first["hidden.weight"], other["hidden.weight"])


def test_paper_models():
    assert [paper_model(d) for d in ("mnist", "fashion-mnist", "cifar10")] == [
        "logistic-regression",
        "mlp",
        "cnn",
    ]


def test_the_layer_of_what_a_parametrization_computes_from_is_its_own():
    """Else the last "layer" of a head with weight normalisation is half of its weights."""
    head = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(5, 2))
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), head)
    assert layers_of(model.state_dict()) == ["0", "1"]
    assert named_layers("private-layers", "last", model.state_dict()) == ("1",)
    outside, within = split(model.state_dict(), ["1"])
    assert (len(outside), len(within)) == (2, 3)
