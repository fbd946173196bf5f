"""PCA + k-means as FLT's authors run it, which experiments/flt-code.toml takes."""

import numpy as np
import pytest

from experiments.linear_graph import LinearGraph


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        ({}, {3: {3, 1}, 1: {3, 1, 8}, 8: {1, 8}, 4: {4}}),
        ({"graph_threshold": 3.0}, {3: {3, 1, 8}, 1: {3, 1, 8}, 8: {3, 1, 8}, 4: {4}}),
    ],
)
def test_by_hand_who_are_neighbours(monkeypatch, within, expected):
    signatures = {3: 0.0, 1: 1.0, 8: 2.1, 4: 9.0}
    answers = {client: np.array([[place, 0]], np.float32) for client, place in signatures.items()}
    monkeypatch.setattr(LinearGraph, "ask", lambda *_: answers)
    found = LinearGraph(num_clusters=2, centroid_distance="matching", **within).find(None)
    assert found.neighbours == expected
    assert found.of_client == {3: 0, 1: 0, 8: 0, 4: 1}
