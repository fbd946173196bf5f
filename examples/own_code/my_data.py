"""A user-defined table: 1,797 written digits, each a row of 64 numbers, the ink in 8 × 8 places."""

import numpy as np
from sklearn.datasets import load_digits


def load():
    """Return training rows, their labels, test rows and theirs: the same in every process."""
    rows, labels = load_digits(return_X_y=True)
    rows = (rows / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(rows))
    train, test = order[:1400], order[1400:]
    return rows[train], labels[train], rows[test], labels[test]
