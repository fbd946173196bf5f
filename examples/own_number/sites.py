"""A number to predict: how far diabetes has gone a year later, at ten sites of people of one age.

B. Efron et al., "Least Angle Regression", Annals of Statistics 2004; scikit-learn brings the data.
"""

import numpy as np
from sklearn.datasets import load_diabetes

from fl_core.data.user_data import Partitions

TARGET = "progression / 100"


def load():
    """Return ten sites of 44 or 45 people, the youngest first; every fifth person is for testing.

    Rows are age, sex, body mass index, blood pressure and six blood serum values, about 1 in size:
    scales that all sites may know, and so does the target's, which is 0.25 to 3.46.
    """
    rows, progression = load_diabetes(return_X_y=True)
    rows, target = (20 * rows).astype(np.float32), (progression / 100).astype(np.float32)
    by_age = np.argsort(rows[:, 0], kind="stable")
    clients = []
    for site in np.array_split(by_age, 10):
        tests = np.arange(len(site)) % 5 == 0
        train, test = site[~tests], site[tests]
        clients.append((rows[train], target[train], rows[test], target[test]))
    return Partitions(clients, class_names=TARGET)


def guess():
    """Return the mean over sites of the RMSE of guessing the mean of all training targets."""
    clients = load().clients
    mean = np.concatenate([target for _, target, _, _ in clients]).mean()
    return float(np.mean([np.sqrt(np.mean((mean - tests) ** 2)) for *_, tests in clients]))
