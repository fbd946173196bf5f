import json
import os
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fl_core.agreement.agreement import Agreement, Survey
from fl_core.agreement.local_data import read_local_images, read_local_samples, survey_images
from fl_core.agreement.vote import agree
from tests.altered import altered
from tests.own_modules import own_modules
from tests.pipes import not_waited_for

CAFE = "café"


def save(path, height, width, value=0, *, gray=True):
    """Write an image of one value; it is what the tests tell images by."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((height, width) if gray else (height, width, 3), value, np.uint8)).save(
        path
    )


def values(images):
    """Return what `save` was given for each image."""
    return images[:, 0, 0, 0].tolist()


@pytest.fixture
def site(tmp_path):
    """Make ten images of bolts (0 to 9) and five of nuts (100 to 104), gray, 32×40, unsplit."""
    root = tmp_path / "scans"
    for name, first, count in (("bolt", 0, 10), ("nut", 100, 5)):
        for i in range(count):
            save(root / name / f"{i}.png", 32, 40, first + i)
    return root


def agreement(*names, shape=(1, 32, 40)):
    return Agreement(names or ("bolt", "nut"), shape)


def survey(names, grey, height, width):
    """Return the survey of a device with images in folders."""
    return Survey(names, (1 if grey else 3, height, width), in_folders=True)


# What a device sends


def test_a_survey_says_names_kind_and_size_only(site):
    assert survey_images(site) == survey(("bolt", "nut"), True, 32, 40)
    assert json.loads(survey_images(site).as_config()["survey"]) == {
        "class_names": ["bolt", "nut"],
        "sample_shape": [1, 32, 40],
        "is_float": False,
        "is_regression": False,
        "columns": {},
        "in_folders": True,
    }


def test_one_name_in_two_spellings_of_unicode(tmp_path):
    save(tmp_path / unicodedata.normalize("NFD", CAFE) / "0.png", 32, 40, 7)
    save(tmp_path / "zoo" / "0.png", 32, 40, 8)
    assert survey_images(tmp_path).class_names == (CAFE, "zoo")
    read = read_local_images(tmp_path, tmp_path / ".cache", agreement("bar", CAFE, "zoo"))
    assert read.train_labels.tolist() == [1, 2]
    save(tmp_path / CAFE / "0.png", 32, 40)
    with pytest.raises(ValueError, match=r"class folders of .* must differ from the others"):
        survey_images(tmp_path)


@pytest.mark.parametrize("name", [b"a\nb", b"a\x1b[31m", b"\xff\xfe"])
def test_folders_with_names_that_are_not_allowed(tmp_path, name):
    folder = tmp_path / "scans" / name.decode(errors="surrogateescape")
    save(folder / "0.png", 32, 40)
    with pytest.raises(
        ValueError, match=r"class folders of .* class name .* must be one line"
    ) as caught:
        survey_images(tmp_path / "scans")
    assert str(caught.value).isprintable()


# What comes over the network

SURVEY = survey(("a", "b"), True, 28, 30)
AGREEMENT = Agreement(("a", "b"), (3, 28, 30))


@pytest.mark.parametrize("record", [SURVEY, AGREEMENT])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"sample_shape": [1, 0, 30]},
            r": sample_shape is \(1, 0, 30\), but it must be 1 to",
        ),
        (
            {"sample_shape": [1, 28.5, 30]},
            r"sample_shape.1 is 28\.5, but it must be a whole number",
        ),
        ({"sample_shape": [3, 1024, 1025]}, r"sample_shape is \(3, 1024, 1025\), but it"),
        ({"sample_shape": 28}, r"sample_shape is 28, but it must be a list"),
        ({"is_float": 1}, r"is_float is 1, but it must be true or false"),
        ({"class_names": ["a", 3]}, "class_names.1 is 3, but it must be text"),
        ({"class_names": [f"{i:05}" for i in range(10_001)]}, "there are 10001 classes"),
        ({"class_names": ["", "a"]}, "class name '' must be one line"),
        ({"class_names": ["a", "b" * 201]}, "class name a str must be one line"),
        ({"class_names": ["a", "b\x1b[2J"]}, r"class name 'b\\x1b\[2J' must be"),
        ({"class_names": ["a", "e\u0301"]}, r"class name 'e\\u0301' must be"),
        ({"class_names": ["a", "a"]}, "each class name must differ"),
        ({"class_names": ["b", "a"]}, "and all must be sorted"),
        ({"surname": "x"}, "has no key surname"),
    ],
)
def test_fields_that_are_refused(record, fields, message):
    with pytest.raises(ValueError, match=message):
        type(record).from_config(altered(record, **fields))


@pytest.mark.parametrize("shape", [[1, 225, 30], [2, 28, 30], [28, 30]])
def test_images_in_folders_have_sides_and_channels_that_can_be_had(shape):
    with pytest.raises(ValueError, match=r": images in folders have at most 224 pixels a side"):
        Survey.from_config(altered(SURVEY, sample_shape=shape))
    assert not Agreement.from_config(altered(AGREEMENT, sample_shape=shape)).suits_folders


def test_the_bounds_themselves_are_allowed():
    names = [f"{i:05}" + "x" * 195 for i in range(1000)]
    record = survey(tuple(names), False, 1, 224)
    assert len(Survey.from_config(record.as_config()).class_names) == 1000
    with pytest.raises(ValueError, match="there are 1001 classes, but from 1 to 1000"):
        Survey.from_config(altered(record, class_names=[*names, "z"]))
    assert Survey.from_config(altered(record, class_names=["a"])).class_names == ("a",)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "class_names": st.lists(st.text(max_size=3), max_size=4) | anything,
        "sample_shape": st.lists(st.integers(0, 230), max_size=4) | anything,
        "is_float": st.booleans() | anything,
        "in_folders": st.booleans() | anything,
        "is_regression": st.booleans() | anything,
        "columns": st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3))) | anything,
    },
)


@given(fields | anything, st.booleans(), st.sampled_from([SURVEY, AGREEMENT]))
def test_garbage_is_a_value_error_or_what_it_says(changed, among_sense, sense):
    if among_sense and isinstance(changed, dict):
        changed = json.loads(sense.as_config()[sense.entry]) | changed
    try:
        record = type(sense).from_config({sense.entry: json.dumps(changed)})
    except ValueError as error:
        assert str(error).isprintable()
        return
    sent = json.loads(record.as_config()[record.entry])
    assert {key: sent[key] for key in changed} == changed
    names = sent["class_names"]
    assert names == sorted(set(names))
    assert all(0 < len(name) <= 200 for name in names)


# What is agreed


def test_classes_are_united_and_one_size_stays():
    surveys = {
        "north": survey(("bolt", "nut"), True, 17, 19),
        "south": survey(("anchor", "nut"), True, 17, 19),
    }
    assert agree(surveys) == Agreement(("anchor", "bolt", "nut"), (1, 17, 19))


def test_gray_and_colour_devices_are_named():
    surveys = {f"g{i}": survey(("a",), True, 28, 28) for i in range(5)}
    surveys["hue"] = survey(("b",), False, 28, 28)
    with pytest.raises(ValueError, match=r"grey images \(g0, g1, g2 and 2 more\) .* \(hue\): conv"):
        agree(surveys)


def test_values_of_a_category_that_may_be_the_same_are_noted(caplog):
    surveys = {
        name: Survey(("a", "b"), (2,), True, columns={"sex": values})
        for name, values in {"x": ("Female", "Male"), "y": ("Female", "male")}.items()
    }
    assert agree(surveys).columns == {"sex": ("Female", "Male", "male")}
    (said,) = caplog.messages
    assert said.startswith("the values of column sex: 'Male', 'male' count as different ones: if")


def test_what_cannot_be_agreed():
    with pytest.raises(ValueError, match="no device described its samples"):
        agree({})
    same = {name: survey(("nut",), True, 28, 28) for name in "xy"}
    with pytest.raises(ValueError, match='the one class "nut", but at least 2'):
        agree(same)
    many = {
        first: survey(tuple(f"{first}{i:04}" for i in range(1000)), True, 28, 28)
        for first in "abcdefghijk"
    }
    with pytest.raises(ValueError, match=r"11000 classes, .* at most .*: a, b, c have the most"):
        agree(many)


# What a device reads


def test_the_same_images_are_held_out_wherever_the_folder_lies_and_in_any_size(site, tmp_path):
    first = read_local_images(site, tmp_path / "cache", agreement())
    (tmp_path / "disk").mkdir()
    moved = site.rename(tmp_path / "disk" / "scans")
    shape = (1, 28, 28)
    second = read_local_images(
        moved, tmp_path / "other", agreement("anchor", "bolt", "nut", shape=shape)
    )
    assert values(second.test_samples) == values(first.test_samples)
    (moved / "train").mkdir()
    for name in ("bolt", "nut"):
        (moved / name).rename(moved / "train" / name)
    third = read_local_images(moved, tmp_path / "cache", agreement())
    assert values(third.test_samples) == values(first.test_samples)
    # Their names' BLAKE2b hashes (of "bolt/1.png" and so on, 16 bytes) are the lowest.
    assert values(first.test_samples) == [1, 5, 103]


def test_a_class_with_one_image_trains_and_is_not_tested(site, tmp_path):
    save(site / "screw" / "0.png", 32, 40, 250)
    save(site / "pair" / "0.png", 32, 40, 251)
    save(site / "pair" / "1.png", 32, 40, 252)
    read = read_local_images(site, tmp_path / "cache", agreement("bolt", "nut", "pair", "screw"))
    assert read.train_labels.bincount().tolist() == [8, 4, 1, 1]
    assert read.test_labels.bincount().tolist() == [2, 1, 1]
    assert values(read.train_samples)[-1] == 250


def test_a_class_that_is_not_agreed_is_named(site, tmp_path):
    with pytest.raises(ValueError, match=r"^nut in .*scans is not among the agreed classes: start"):
        read_local_images(site, tmp_path / "cache", agreement("bolt", "gear"))


def test_the_other_kind_of_images_is_refused(site, tmp_path):
    with pytest.raises(ValueError, match=r"scans are grey, but colour was agreed: convert"):
        read_local_images(site, tmp_path / "cache", agreement(shape=(3, 32, 40)))


def test_decoded_images_can_be_read_by_their_owner_only(site, tmp_path):
    cache = tmp_path / "cache"
    read_local_images(site, cache, agreement())
    stored = [path for path in cache.rglob("*.safetensors") if path.is_file()]
    assert stored
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*stored, cache / "datasets"))


def test_a_survey_names_files_that_are_not_read(site, caplog):
    (site / "bolt" / "10.HEIC").touch()
    (site / "notes.txt").touch()
    survey_images(site)
    assert caplog.messages == [
        f"in {site}, only images in class folders are read, not notes.txt, bolt/10.HEIC"
    ]


@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
def test_a_link_to_a_pipe_or_a_device_is_named_and_not_waited_for(site, tmp_path, target):
    os.mkfifo(site / "pipe")
    (site / "bolt" / "link.png").symlink_to(site / target)
    said = r"1 of 16 images in .*, bolt/link.png \(the first: it is not a file\): remove or replace"
    for look in (survey_images, lambda site: read_local_images(site, tmp_path, agreement())):
        with not_waited_for(site / "pipe"), pytest.raises(ValueError, match=said):
            look(site)


DOSE = Survey(("dose (mg)",), (3,), is_float=True, is_regression=True)


def test_devices_may_agree_on_a_number_to_predict():
    agreed = agree({"a": DOSE, "b": DOSE})
    assert agreed == Agreement(("dose (mg)",), (3,), is_float=True, is_regression=True)
    assert agreed.num_classes == 1
    assert Agreement.from_config(agreed.as_config()) == agreed
    assert Survey.from_config(DOSE.as_config()) == DOSE


@pytest.mark.parametrize(
    ("agreed", "message"),
    [
        (Agreement(("dose",), (2,), is_float=True, is_regression=True), None),
        (Agreement(("mass",), (2,), is_float=True, is_regression=True), 'the number "mass" was'),
        (Agreement(("a", "dose"), (2,), is_float=True), "but float32 of shape 2 was agreed"),
    ],
)
def test_a_devices_numbers_are_read_as_they_are(agreed, message, tmp_path):
    text = """
import numpy as np

def load():
    x, y = np.zeros((3, 2), np.float32), np.float32([0.5, 2, -1])
    return x, y, x[:1], y[:1], "dose"
"""
    with own_modules(tmp_path, mine=text):
        if message is None:
            assert read_local_samples("mine:load", agreed).train_labels.tolist() == [0.5, 2, -1]
            return
        with pytest.raises(ValueError, match=message):
            read_local_samples("mine:load", agreed)
