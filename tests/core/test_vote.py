"""What one device's survey can do to all others: nothing."""

import pytest

from fl_core.agreement.agreement import Survey
from fl_core.agreement.vote import agree, outvoted, with_whole_numbers
from fl_core.data.preparation import sample_columns


def table(**columns):
    return Survey(("a", "b"), (len(sample_columns(columns)),), True, columns=columns)


HONEST = table(age=(), sex=("f", "m"))
OTHERS = dict.fromkeys(("berlin", "lyon", "rome"), HONEST)


def values(count, start=0):
    return tuple(f"v{number:02}" for number in range(start, start + count))


@pytest.mark.parametrize("name", ["aaron", "zoe"])  # the first or the last of all
@pytest.mark.parametrize(
    ("usual", "other", "reason"),
    [
        # Similar words, of other columns.
        (table(age=(), sex=()), table(**{"age, sex": ()}), "has the column age"),
        (HONEST, table(age=(), **{"sex (texts)": ()}), "has the column sex"),
        (
            Survey(("dose",), (1,), True, True, {"hour": ()}),
            table(**{'hour with the number "dose"': ()}),
            "has the column hour",
        ),
    ],
)
def test_a_kind_is_no_words(name, usual, other, reason):
    surveys = {name: other, **dict.fromkeys(OTHERS, usual)}
    found = outvoted(surveys)
    assert list(found) == [name]
    assert reason in found[name]
    del surveys[name]
    assert agree(surveys).columns == usual.columns


@pytest.mark.parametrize("name", ["aaron", "zoe"])
def test_a_device_with_values_that_no_other_has_is_left_out(name):
    made_up = table(age=(), sex=values(50))
    found = outvoted({name: made_up, **OTHERS})
    assert list(found) == [name]
    assert found[name].startswith("column sex has 52 different texts at all devices together, but")
    few = table(age=(), sex=values(8))  # not too many with the others'
    assert outvoted({name: few, **OTHERS}) == {}


def test_who_has_fewer_values_than_others_is_left_out_if_no_other_has_them():
    usual = dict.fromkeys(OTHERS, table(age=(), sex=values(48)))
    alone = table(age=(), sex=values(3, start=60))
    assert list(outvoted({"aaron": alone, **usual})) == ["aaron"]
    # Shared ones: 40 of two devices, a half each, are more than 47 of three, a third each.
    two = table(age=(), sex=("v00", *values(40, start=50)))
    assert list(outvoted({"aaron": two, "zoe": two, **usual})) == ["aaron", "zoe"]


def test_where_all_have_different_values_none_is_left_out():
    surveys = {name: table(age=(), sex=values(20, 20 * i)) for i, name in enumerate("abcde")}
    assert outvoted(surveys) == {}
    with pytest.raises(ValueError, match="column sex has 100 different texts"):
        agree(surveys)


def test_as_many_of_one_kind_as_of_another_are_refused():
    wide = table(age=(), height=(), sex=("f", "m"))
    with pytest.raises(ValueError, match=r"one kind of samples as another, .*berlin.*oslo"):
        outvoted({"berlin": HONEST, "oslo": wide})


def test_only_most_tables_turn_whole_labels_of_others_into_numbers():
    numbers = Survey(("dose",), (1,), True, True, {"hour": ()})
    whole = Survey(("1", "2"), (1,), True, columns={"hour": ()})
    half = {"berlin": numbers, "oslo": whole}
    assert with_whole_numbers(half) == half
    assert with_whole_numbers({**half, "rome": numbers})["oslo"] == numbers


def images(first, count):
    names = tuple(f"{number:05}" for number in range(first, first + count))
    return Survey(names, (1, 28, 28), in_folders=True)


@pytest.mark.parametrize(
    ("counts", "added", "is_left_out"),
    [
        # Where most share their classes, one may add 5, or as many as the median device has.
        ([2, 2, 2], 5, False),
        ([2, 2, 2], 6, True),
        ([2, 2, 2], 19, True),
        ([2, 2, 2], 998, True),
        ([10, 10, 7, 3], 10, False),
        ([10, 10, 7, 3], 19, True),
    ],
)
def test_one_device_adds_few_classes_that_no_other_has(counts, added, is_left_out):
    honest = {f"site-{i}": images(0, count) for i, count in enumerate(counts)}
    names = (*images(0, 2).class_names, *(f"x{i:03}" for i in range(added)))
    surveys = {**honest, "mallory": Survey(names, (1, 28, 28), in_folders=True)}
    found = outvoted(surveys)
    assert list(found) == ["mallory"] * is_left_out
    if is_left_out:
        assert found["mallory"].startswith(
            f"it has {added} classes that no other device has (x000, x001, x002 and {added - 3} "
            "more), but one device may add"
        )
        # Two who do so differently are both named.
        eve = images(50_000, added)
        assert outvoted({**surveys, "eve": eve, "site-9": images(0, 2)}).keys() == {
            "mallory",
            "eve",
        }


def test_devices_that_share_no_class_may_differ_in_how_many_they_have():
    counts = (6, 7, 8, 9, 16)  # the median device adds 8: twice as many are usual
    surveys = {f"s{count}": images(100 * count, count) for count in counts}
    assert outvoted(surveys) == {}
    assert list(outvoted({**surveys, "s16": images(1600, 17)})) == ["s16"]
    assert outvoted({"a": images(0, 10), "b": images(0, 3)}) == {}  # of two, none is at fault


def test_a_device_with_classes_that_no_other_has_is_left_out():
    usual = {f"site-{i:02}": images(1000 * i, 1000 - i) for i in range(9)}
    similar = {f"z{i}": images(0, 900) for i in range(4)}
    surveys = {**usual, "other": images(20_000, 1000), **similar}
    assert outvoted(surveys) == {}
    surveys["more"] = images(30_000, 100)
    found = outvoted(surveys)
    assert list(found) == ["other"]
    assert found["other"].startswith("there are 10064 different classes at all devices together")
    del surveys["other"]
    assert len(agree(surveys).class_names) == 9064
