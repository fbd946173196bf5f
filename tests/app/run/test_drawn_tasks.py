"""Tasks that are drawn by the seed, in the whole app."""

import pytest

from tests.app_runs import SGD, of_strategy, run


def test_images_do_not_tell_who_means_what(tmp_path, capsys):
    summary = run(
        tmp_path / "out",
        strategy="rcc-pfl,optimum",
        clients=8,
        num_tasks=2,
        shift="concept",
        num_server_rounds=2,
        evaluate_every=2,
        **SGD,
    )
    assert "shift=concept" in capsys.readouterr().out
    found, known = (of_strategy(summary, name) for name in ("rcc-pfl", "optimum"))
    assert summary["config"]["num-tasks"] == 2
    assert abs(found["ari"]) < 0.3
    assert known["ari"] == 1
    assert known["accuracy"] > found["accuracy"] + 0.2


@pytest.mark.slow
@pytest.mark.faults
def test_tasks_that_share_nothing_need_models_of_their_own(tmp_path):
    summary = run(
        tmp_path / "out",
        strategy="fedhc,single",
        clients=6,
        dataset="synthetic",
        heterogeneity=1.0,
        num_server_rounds=3,
        evaluate_every=3,
        **SGD,
    )
    found, single = (of_strategy(summary, name) for name in ("fedhc", "single"))
    assert summary["config"]["tasks"] == ""
    assert found["ari"] == 1
    assert found["accuracy"] > single["accuracy"] + 0.1
