"""Concept shift: who looks at images only cannot see it; who knows the tasks learns."""

from tests.app_runs import SGD, of_strategy, run


def test_images_do_not_tell_who_means_what(tmp_path):
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
    found, known = (of_strategy(summary, name) for name in ("rcc-pfl", "optimum"))
    assert summary["config"]["num-tasks"] == 2
    assert abs(found["ari"]) < 0.3
    assert known["ari"] == 1
    assert known["accuracy"] > found["accuracy"] + 0.2
