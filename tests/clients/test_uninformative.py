"""Clients of whom a comparison says little: numbers by hand, and what must not matter."""

import numpy as np
import pytest
import torch

from clients.features.formulas import fourier
from clients.signatures.uninformative import why_little_to_compare, why_uninformative

SAME = "all its samples are the same"


def rows(*numbers):
    return np.array(numbers, np.float32)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (rows([3, 1], [4, 1], [-4, 1]), ""),  # 41 of 44 squares, 0.932
        (rows([3, 1], [5, 1], [-5, 1]), "column 0"),  # 59 of 62, 0.952
        (rows([1, -3], [0, 9]), "column 1"),
        (rows([7], [8]), "column 0"),  # there is one only
        (rows([2, 1], [2, 1]), SAME),
        (rows([2, 1]), ""),  # one sample is what it is
        (rows([0, 0], [0, 0]), SAME),
        (rows([0, 0]), ""),  # its spectrum is refused anyway
    ],
)
def test_what_is_said_by_hand(features, said):
    found = why_uninformative(features)
    assert said in found
    assert bool(said) == bool(found)


def test_a_column_has_its_name_if_all_have_one():
    features = rows([3, 1], [5, 1], [-5, 1])
    assert why_uninformative(features, ("a\tb", "c")).startswith("column a\\tb of its features")
    assert why_uninformative(features, ("a",)).startswith("column 0 of its features")


def little(samples, columns=()):
    found = fourier(torch.from_numpy(samples)).numpy()
    assert not why_uninformative(found) or (samples == samples[0]).all()
    return why_little_to_compare("fourier", samples, found, columns)


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (rows([9, 1], [-9, -1]), "column age of its features holds nearly all"),  # 81 of 82
        (rows([4, 1], [-4, -1]), ""),  # 16 of 17, 0.941
        (rows([2014, 1], [2012, -1]), ""),  # a mean turns all features equally
        (rows([2013, 1], [2013, -1]), ""),
        (rows([5], [900]), ""),  # there is one that varies, and its values can be compared
        (rows([2, 1], [2, 1]), SAME),
        (rows([[3, 4], [1, 9]], [[3, 4], [0, -9]]), "column 3"),  # of a series
    ],
)
def test_of_fourier_features_the_columns_of_samples_are_judged(samples, said):
    found = little(samples, ("age", "mass"))
    assert said in found
    assert bool(said) == bool(found)
