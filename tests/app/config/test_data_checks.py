"""What data do not suit, before anything is trained on them."""

import pytest

from fl_app.config.data_checks import check_samples
from fl_app.config.run_config import parse_config
from fl_core.data.datasets import load_dataset
from tests.app_runs import DEFAULTS
from tests.own_modules import own_modules


@pytest.mark.parametrize(
    ("samples", "names", "said"),
    [
        ("np.zeros((4, 1, 150, 150, 150), np.float32)", "['a', 'b']", "sample_shape is .1, 150"),
        (
            "np.zeros((4, 2), np.float32)",
            "list(map(str, range(10_001)))",
            "class_names is .* 1 to 10000 texts",
        ),
    ],
)
def test_what_no_models_file_can_say_is_refused_before_training(samples, names, said, tmp_path):
    text = f"import numpy as np\ndef load():\n    x, y = {samples}, [0, 1, 0, 1]\n"
    with own_modules(tmp_path, own=f"{text}    return x, y, x, y, {names}\n"):
        config = parse_config({**DEFAULTS, "dataset": "own:load", "model": "mlp-32"})
        with pytest.raises(ValueError, match=f"models of own:load could not be saved: .*{said}"):
            check_samples(config, load_dataset("own:load"))
