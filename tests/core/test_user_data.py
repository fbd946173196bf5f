"""User-defined data: what a function may return, and given partitions."""

import numpy as np
import pytest
import torch

from fl_core.data.datasets import load_dataset
from fl_core.data.user_data import read_repeatable, read_user_data
from fl_core.partitions.federation import spread
from fl_core.partitions.settings import FederationSettings
from tests.own_modules import TABLE, own_modules

X, Y = "np.zeros((4, 2), np.float32)", "(np.arange(4) % 2)"


def returned(expression):
    return f"import numpy as np\nimport torch\n\n\ndef load():\n    return {expression}"


def read(folder, expression):
    with own_modules(folder, mine=returned(expression)):
        return read_user_data("mine:load")


def test_a_table_is_a_data_set_of_rows(tmp_path):
    with own_modules(tmp_path, mine=TABLE):
        data = load_dataset("mine:load")
        assert load_dataset("mine:load") is data
    assert (data.name, data.sample_shape, data.num_classes) == ("mine:load", (6,), 4)
    assert data.is_float
    assert data.class_names == ("0", "1", "2", "3")
    assert data.train_labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("None", r"nothing; it must return \(train samples, train labels, test"),
        (f"({X}, {Y})", "a tuple of 2; it must"),
        (
            f"({X}.astype(int), {Y}, {X}, {Y})",
            r"are int64 \(4, 2\), but must be float32 or float64",
        ),
        (
            f"({X}, {Y}, {X}.astype('uint8'), {Y})",
            "test samples are uint8 .* but training sa",
        ),
        (
            f"({X}, {Y}[:3], {X}, {Y})",
            r"labels are int64 \(3,\), but .* shape \(4,\)",
        ),
        (f"({X}, {Y} * 0.5, {X}, {Y})", r"labels are float64 \(4,\) and class names are nothing"),
        (f"({X}, {Y}[:, None], {X}, {Y})", r"labels are int64 \(4, 1\), but must be whole"),
        (f"({X}, {Y} + 1, {X}, {Y})", r"training labels are \[1, 2\], but must be at least two"),
        (f"({X}, {Y}, {X}, {Y} + 1)", "test labels are from 1 to 2, but it has 2 classes"),
        (
            f"({X}, {Y} - 1, {X}, {Y}, ['a', 'b'])",
            "training labels are from -1 to 0, but it",
        ),
        (f"({X}[:, 0], {Y}, {X}, {Y})", r"float32 \(4,\), but must be \(n, …\)"),
        (f"({X} + np.nan, {Y}, {X}, {Y})", "training samples contain infinity, NaN or"),
        (f"({X}[:0], {Y}[:0], {X}, {Y}, ['a', 'b'])", "data set mine:load: it has no training"),
        (f"({X}, {Y}, {X}, {Y}, 2)", "class names are an int; give a list of"),
        (f"([object()], {Y}, {X}, {Y})", "training samples are a list of 1, of which PyTorch"),
        (f"([[0], []], {Y}, {X}, {Y})", "training samples are a list of 2, of which PyTorch"),
        (f"(np.ma.masked_equal({X}, 0), {Y}, {X}, {Y})", "training samples are masked in"),
        (f"({X}, list('abab'), {X}, {Y})", "training labels are a list of 4, of which PyTorch"),
        (f"({X}, {Y}, {X}, {Y}, ['a', 'a'])", "two classes are named a: rename one"),
    ],
)
def test_what_is_no_data_set_is_one_sentence(expression, message, tmp_path):
    with pytest.raises(
        ValueError, match=f'^dataset is "mine:load", but it returned unusable.*{message}'
    ) as e:
        read(tmp_path, expression)
    assert str(e.value).endswith(".")


IMAGES = "np.arange(4 * 8 * 9 * {0}).reshape(4, 8, 9, {0}).astype(np.{1})"


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("form", ["({x}, {y}, {x}, {y})", "partitions"])
def test_channels_that_are_last_are_moved_to_the_front(channels, kind, form, tmp_path):
    x = f"({IMAGES.format(channels, kind)} / 4).astype(np.{kind})"
    x = f"{x} / np.float32(1024)" if kind == "float32" else x
    part = f"({x}, {Y}, {x}, {Y})"
    data = read(tmp_path, part if form != "partitions" else partitions(f"{part}, {part}"))
    assert data.sample_shape == (channels, 8, 9)
    expected = torch.from_numpy(eval(x, {"np": np})).permute(0, 3, 1, 2)  # noqa: S307
    assert torch.equal(data.train_samples[:4], expected)
    assert torch.equal(data.test_samples[:4], expected)
    (note,) = data.notes
    assert note == (
        f"samples of mine:load have the shape 8×9×{channels}, which is taken for images of 8 "
        f"pixels in height with {channels} channels, the last dimension: the channels are moved "
        "to the front"
    )


@pytest.mark.parametrize(
    ("scale", "is_noted"),
    [("1", True), ("255", False), ("-1", False), ("3", False), ("0.3", True), ("1e-3", True)],
)
@pytest.mark.parametrize("shape", ["4, 1, 8, 8", "4, 8, 8, 1", "4, 8, 8"])
def test_unscaled_pixels_are_noted(scale, is_noted, shape, tmp_path):
    x = f"(np.arange(256, dtype=np.float32).reshape({shape}) / np.float32({scale}))"
    notes = read(tmp_path, f"({x}, {Y}, {x}, {Y})").notes
    said = f"samples of mine:load are numbers up to {255 / float(scale):g}, which seem to be pixels"
    assert any(note.startswith(said) for note in notes) == is_noted


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_a_client_whose_images_are_all_equal_is_refused(kind, tmp_path):
    x = f"np.arange(64 * 4).reshape(4, 1, 8, 8).astype(np.{kind})"
    part, equal = (f"({one}, {Y}, {x}, {Y})" for one in (x, f"{x}[[1] * 4]"))
    with pytest.raises(ValueError, match="all training images of client 1 have the same pixels"):
        read(tmp_path, partitions(f"{part}, {equal}"))
    with pytest.raises(ValueError, match="all training images have the same pixels"):
        read(tmp_path, equal)


@pytest.mark.parametrize("made", ["np.ones((4, 2), np.float32)", "torch.ones(4, 2)"])
def test_a_function_that_changes_what_it_returned_is_noticed(made, tmp_path):
    text = returned(f"(X, {Y}, X, {Y})").replace("load():", "load():\n    global X\n    X *= 0.5")
    with (
        own_modules(tmp_path, mine=f"{text}\n\n\nX = {made}"),
        pytest.raises(ValueError, match="returned other data when it was called again"),
    ):
        read_repeatable("dataset", "mine:load", read_user_data, "every worker")


# ------------------------------------------------------------------------ partitions already made

PART = f"({X}, {Y}, {X}[:2], {Y}[:2])"


def partitions(clients, rest=""):
    return f"__import__('fl_core.data.user_data', fromlist=['x']).Partitions([{clients}]{rest})"


def settings(clients, **options):
    return FederationSettings(dataset="mine:load", num_clients=clients, seed=0, **options)


def test_each_client_has_its_partition(tmp_path):
    other = "(np.ones((3, 2), np.float32), [1, 1, 0], np.ones((1, 2), np.float32), [1])"
    data = read(tmp_path, partitions(f"{PART}, {other}, {PART}", ", tasks=[7, 2, 7]"))
    federation = spread(settings(3), data)
    assert federation.knows_tasks
    assert federation.partition.client_tasks.tolist() == [1, 0, 1]
    assert federation.partition.tasks == ((0, 1), (0, 1))
    images, labels = federation.training_data(1)
    assert torch.equal(images, torch.ones(3, 2))
    assert labels.tolist() == [1, 1, 0]
    assert federation.test_data(1)[1].tolist() == [1]
    assert [len(federation.training_data(c)[0]) for c in range(3)] == [4, 3, 4]


def test_clients_are_called_as_their_names_say(tmp_path):
    data = read(tmp_path, partitions(f"{PART}, {PART}", ", names=['Zoë, left', 'b' * 200]"))
    assert spread(settings(2), data).names == ("Zoë, left", "b" * 200)
    assert spread(settings(2), read(tmp_path, partitions(f"{PART}, {PART}"))).names == ()


@pytest.mark.parametrize(
    ("clients", "options", "message"),
    [
        (3, {}, "num-clients is 3, but mine:load comes in 2 partitions: set num-clients to 2"),
        (2, {"tasks": "0|1"}, "tasks is 0|1, but mine:load comes in partitions: leave"),
        (2, {"clients_per_task": "1,1"}, "clients-per-task is 1,1, .*: leave it empty"),
        (2, {"noise": "class-dependent"}, "noise is class-dependent, .*: leave it at none"),
        (
            2,
            {"drift_clients": 2, "drift_round": 2},
            "comes in partitions: leave it at 0",
        ),
        (2, {"shift": "concept"}, 'shift is "concept", but mine:load has tasks that are'),
    ],
)
def test_options_that_change_given_partitions_are_refused(clients, options, message, tmp_path):
    data = read(tmp_path, partitions(f"{PART}, {PART}"))
    with pytest.raises(ValueError, match=message):
        spread(settings(clients, **options), data)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (partitions(""), "Partitions of a list of 0; give a list"),
        (partitions("").replace("[]", "None"), "Partitions of nothing; give a list with one"),
        (partitions(f"{PART}, 3"), "client 1's partition is an int; give four arrays"),
        (partitions(f"{PART}, ({X}[:, :1], {Y}, {X}[:, :1], {Y})"), "client 1's samples are"),
        (partitions(f"{PART}, ({X}, {Y}, {X}[:0], {Y}[:0])"), "each client needs some"),
        (partitions(PART, ", tasks=[0, 1]"), r"tasks are int64 \(2,\); give 1 whole numbers"),
        (partitions(PART, ", tasks={0: 1}"), r"tasks are object \(\); give 1 whole numbers"),
        (partitions(PART, ", tasks=[0.5]"), r"tasks are float64 \(1,\); give 1 whole"),
        (partitions(PART, ", names={0: 'a'}"), "names are a dict; give a list"),
        (partitions(PART, ", names=['a', 'b']"), "2 names for 1 clients: give one for each"),
        (partitions(f"{PART}, {PART}", ", names=['a', 'a']"), "two clients named a: rename one"),
        (partitions(PART, ", names=['a\\nb']"), "name of client 0, but a name must be one line of"),
        (partitions(PART, ", names=['']"), "'' as the name of client 0, but a name must be"),
    ],
)
def test_what_are_no_partitions_is_one_sentence(expression, message, tmp_path):
    with pytest.raises(ValueError, match=f"but it returned unusable data.*{message}"):
        read(tmp_path, expression)


X4, NUMBERS = "np.zeros((4, 2), np.float32)", "np.float32([1.5, 2, 0, -3])"


@pytest.mark.parametrize("name", ["'dose (mg)'", "['dose (mg)']", "('dose (mg)',)"])
def test_a_number_to_predict_has_a_name(name, tmp_path):
    data = read(tmp_path, f"({X4}, {NUMBERS}, {X4}, {NUMBERS}, {name})")
    assert data.is_regression
    assert (data.num_classes, data.class_names) == (1, ("dose (mg)",))
    assert data.train_labels.tolist() == [1.5, 2, 0, -3]
    assert data.train_groups.tolist() == data.test_groups.tolist() == [0] * 4
    settings = FederationSettings(
        dataset="mine:load", num_clients=2, seed=0, num_tasks=1, min_samples=1, partition="equal"
    )
    federation = spread(settings, data)
    assert sorted(map(len, federation.partition.train)) == [2, 2]
    held = [federation.training_data(client)[1].tolist() for client in range(2)]
    assert sorted(held[0] + held[1]) == [-3, 0, 1.5, 2]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"({X4}, {NUMBERS}, {X4}, {NUMBERS})", "class names are nothing; give"),
        (f"({X4}, {NUMBERS}, {X4}, {NUMBERS}, ['a', 'b'])", "class names are a list of 2; give"),
        (
            f"({X4}, {NUMBERS}, {X4}, {Y}, 'a')",
            r"test labels are int64 \(4,\), but train",
        ),
        (f"({X4}, {NUMBERS} / 0, {X4}, {NUMBERS}, 'a')", "training labels contain infinity"),
    ],
)
def test_what_is_no_number_to_predict_is_one_sentence(expression, message, tmp_path):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        read(tmp_path, expression)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "num-tasks is 2, but mine:load predicts a number"),
        ({"tasks": "0"}, "tasks is 0, but mine:load predicts a number"),
        ({"num_tasks": 1, "noise": "class-independent"}, "noise is .* not a class"),
        ({"num_tasks": 1, "shift": "concept"}, 'shift is "concept", but mine:load predicts'),
    ],
)
def test_what_needs_classes_is_refused_for_a_number(options, message, tmp_path):
    data = read(tmp_path, f"({X4}, {NUMBERS}, {X4}, {NUMBERS}, 'dose')")
    settings = FederationSettings(dataset="mine:load", num_clients=2, seed=0, **options)
    with pytest.raises(ValueError, match=message):
        spread(settings, data)
