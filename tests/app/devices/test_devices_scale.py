"""Devices with tables of one scale, and with a number to predict: whole runs in this process."""

import csv
import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Array, ArrayRecord, MetricRecord

from fl_app.cli import main
from fl_app.config.run_config import parse_config
from fl_app.devices.common_scale import decode_statistics, encode_statistics
from fl_app.devices.site.check import describe_data
from fl_app.results.spectra import load_spectra
from fl_core.agreement.agreement import Agreement, Survey
from fl_core.agreement.vote import agree, outvoted, with_whole_numbers
from fl_core.data.scaling import ColumnStatistics, Scaling
from fl_core.models.model_file import load_model
from tests.altered import altered
from tests.app_runs import DEFAULTS
from tests.device_runs import run
from tests.device_tables import BERLIN, OSLO, device

SITES = {"berlin": 0, "lyon": 0, "oslo": 1, "rome": 1}
MEASURED = BERLIN.replace("well", "0.5").replace("ill", "1")


def rows_of(name, label="outcome", seed=0):
    """Sixty rows far from nought: one kind of site has all of another size."""
    rng = np.random.default_rng([seed, *name.encode()])
    ill = rng.integers(0, 2, 60)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["age [years]", "dose", "mass"])
    frame["dose"] += 3 * (2 * ill - 1)
    frame = 1000 * frame + 5000 * (1 + SITES[name])
    frame["colour"] = rng.choice(["blue", "red"], 60)
    if label == "size":
        return frame.assign(size=150 + 10.5 * ill)
    return frame.assign(outcome=np.where(ill, "ill", "well"))


def ran(folder, label, **options):
    """Run on four devices, and return the summary's run and where each model is stored."""
    tables, models = {}, {}
    for name in SITES:
        tables[name] = folder / f"{name}.csv"
        rows_of(name, label).to_csv(tables[name], index=False)
        models[name] = folder / name / "model.safetensors"
    words = {"features": "raw", "num_clusters": 2, "num_eigenvectors": 2}
    words |= {"num_server_rounds": 3, "learning_rate": 0.03, "model_paths": models}
    words |= {"optimizer": "adam", "label": label, **options}
    summary, grid = run(folder / "out", tables, **words)
    return summary["runs"][0], models, grid


def scale_of_all(label="outcome"):
    """Return the moments of the training rows, the first four fifths, of all sites."""
    training = pd.concat([rows_of(name, label)[:48] for name in SITES])
    numbers = training[["age [years]", "dose", "mass"]].to_numpy(np.float64)
    blue = (training["colour"] == "blue").to_numpy()
    mean = [numbers[:, 0].mean(), blue.mean(), (~blue).mean(), *numbers.mean(axis=0)[1:]]
    deviation = [numbers[:, 0].std(), 1, 1, *numbers.std(axis=0)[1:]]
    return mean, deviation


def classified(model, folder, name, label):
    """Let `fedkin classify` read new rows of a site, and return its answers and the truth."""
    new = rows_of(name, label, seed=1)
    path = folder / "new.csv"
    new.drop(columns=label).to_csv(path, index=False)
    assert main(["classify", str(model), str(path), "--output", str(folder / "said.csv")]) == 0
    said = list(csv.DictReader((folder / "said.csv").read_text(encoding="utf-8").splitlines()))
    return said, new[label].to_numpy()


@pytest.mark.slow  # a run
def test_all_devices_have_one_scale_and_their_models_carry_it(tmp_path, caplog):
    one, models, grid = ran(tmp_path, "outcome", standardise="all", checkpoint_every=3)
    assert one["accuracy"] > 0.9
    assert grid.asked("oslo").count("query.moments") == 1
    mean, deviation = scale_of_all()
    for name in ("berlin", "rome"):
        done = load_model(models[name])[1].preparation
        assert done.standardise == "all"
        np.testing.assert_allclose(done.scaling.mean, mean, rtol=1e-12)
        np.testing.assert_allclose(done.scaling.deviation, deviation, rtol=1e-12)
        said, truth = classified(models[name], tmp_path, name, "outcome")
        assert np.mean([row["class"] for row in said] == truth) > 0.9
    stored = load_spectra(tmp_path / "out/spectra-rcc-pfl-seed-0.safetensors").card.preparation
    assert stored.scaling == done.scaling
    # Whoever goes on does not ask again: an answer might be another one by now.
    resumed = {"resume": str(tmp_path / "out"), "checkpoint_every": 3, "standardise": "all"}
    _, _, again = ran(tmp_path, "outcome", **resumed)
    assert "query.moments" not in again.asked("oslo")


@pytest.mark.slow  # a run
def test_of_its_own_scale_a_device_learns_and_warns_once(tmp_path, caplog):
    """Sizes are 150 and 160.5: all taken for the mean would be 5.25 off."""
    with caplog.at_level(logging.WARNING, "fl_app.devices.site.device_node"):
        one, models, _ = ran(tmp_path, "size", standardise="site")
    assert one["rmse"] < 3
    assert not [record for record in caplog.records if "constant" in record.message]
    card = load_model(models["lyon"])[1]
    assert (card.class_names, card.preparation.standardise) == (("size",), "site")
    local = rows_of("lyon", "size")["size"][:48].to_numpy()
    assert card.preparation.scaling.target_mean == pytest.approx(local.mean(), rel=1e-6)
    said, truth = classified(models["lyon"], tmp_path, "lyon", "size")
    off = np.array([float(row["size"]) for row in said]) - truth
    assert np.sqrt(np.mean(off**2)) < 3


def test_a_constant_column_is_reported_once_by_its_name(tmp_path, caplog):
    tables = {name: tmp_path / f"{name}.csv" for name in SITES}
    for name, path in tables.items():
        rows_of(name).assign(mass=7.5).to_csv(path, index=False)
    options = {"label": "outcome", "features": "raw", "num_eigenvectors": 2}
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "out", tables, standardise="site", num_server_rounds=1, **options)
    parsed = [r.getMessage() for r in caplog.records if "constant" in r.getMessage()]
    words = "constant at some site: mass; standardised by a deviation of 1"
    assert parsed == [f"{name}: {words}" for name in SITES]


def test_a_device_with_invalid_moments_is_excluded(tmp_path, caplog):
    def lie(message, context, answer):
        rows = np.full((3, 5), np.inf)
        answer.content.array_records["arrays"]["moments"] = Array(rows)
        return answer

    corrupt = {("query.moments", "rome"): lie}
    _, models, _ = ran(tmp_path, "outcome", standardise="all", corrupt=corrupt, num_server_rounds=1)
    assert "rome is left out, its moments failed: the moments are not those" in caplog.text
    training = pd.concat([rows_of(name)[:48] for name in SITES if name != "rome"])
    found = load_model(models["oslo"])[1].preparation.scaling
    assert found.mean[3] == pytest.approx(training["dose"].mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("row", "changed", "count", "message"),
    [
        (1, np.nan, 4, "not those of finite numbers"),
        (1, 1e39, 4, "not those of finite numbers"),
        (1, -1.0, 4, "not those of finite numbers"),
        (2, 0.5, 4, "not those of finite numbers"),
        (1, 1.5, 0, "of 0 samples"),
        (1, 1.5, 10**13, "of 10000000000000 samples"),
    ],
)
def test_statistics_of_a_device_are_checked(row, changed, count, message):
    local = ColumnStatistics.of(torch.tensor([[1.0, 0], [4, 1]]))
    answer = encode_statistics(local)
    back = decode_statistics(answer, 2)
    assert (back.num_rows, back.mean.tolist(), back.deviation.tolist()) == (
        2,
        [2.5, 0.5],
        [1.5, 0.5],
    )
    assert back.is_flag.tolist() == [False, True]
    with pytest.raises(ValueError, match=r"float64 of shape \(3, 2\), not float64 of \(3, 3\)"):
        decode_statistics(answer, 3)
    rows = np.stack([local.mean, local.deviation, local.is_flag.astype(float)])
    rows[row, 0] = changed
    answer["arrays"] = ArrayRecord({"moments": Array(rows)})
    answer["metrics"] = MetricRecord({"num-examples": count})
    with pytest.raises(ValueError, match=message):
        decode_statistics(answer, 2)


def test_a_common_scale_is_refused_with_protected_data():
    words = {**DEFAULTS, "dataset": "devices", "strategy": "rcc-pfl", "standardise": "all"}
    assert parse_config(words).standardise == "all"
    for key, value in (("secure-aggregation", True), ("training-epsilon", 2.0)):
        with pytest.raises(ValueError, match=rf"^standardise is all, .*{key}"):
            parse_config({**words, key: value})


def test_a_scale_is_agreed_and_travels(tmp_path):
    berlin, oslo = device(tmp_path, "berlin", MEASURED), device(tmp_path, "oslo", OSLO)
    surveys = {"berlin": berlin.survey()}
    one = replace(agree(surveys), scaling=Scaling((1.0,) * 3, (2.0,) * 3, 5.0, 6.0))
    assert Agreement.from_config(one.as_config()) == one
    assert one.is_regression and one.class_names == ("outcome",)
    assert one.preparation.scaling.target_deviation == 6
    with pytest.raises(ValueError, match="its samples have more or fewer columns than its scal"):
        replace(one, scaling=Scaling((1.0,), (2.0,)))
    scale = {"mean": [1.0] * 3, "deviation": [2.0] * 3, "target_mean": 5, "target_deviation": 6}
    for wrong in ({"mean": [1.0]}, {"mean": "x"}, {"deviation": [2.0, 2.0, 0.0]}):
        with pytest.raises(ValueError, match=r"means|mean|deviations"):
            Agreement.from_config(altered(one, scaling=scale | wrong))
    with pytest.raises(ValueError, match=r"^column outcome of oslo has texts, but a numb"):
        device(tmp_path, "oslo", OSLO.replace("green", "red")).read(one)
    assert berlin.read(one).train_labels.tolist() == [0.5, 0.5, 1, 0.5]
    classes = agree({"berlin": device(tmp_path, "berlin", BERLIN).survey(), "o": oslo.survey()})
    with pytest.raises(ValueError, match="column outcome of berlin has fractions, but classes wer"):
        device(tmp_path, "berlin", MEASURED).read(classes)


def test_whole_numbers_are_numbers_where_most_have_fractions(tmp_path):
    """A site whose doses happen to be whole is none with classes; one with texts is."""
    whole = BERLIN.replace("well", "3").replace("ill", "-1")
    texts = {"berlin": MEASURED, "lyon": MEASURED, "oslo": whole}
    surveys = {n: device(tmp_path, n, text).survey() for n, text in texts.items()}
    parsed = {name: Survey.from_config(one.as_config()) for name, one in surveys.items()}
    assert parsed == surveys
    assert [one.is_regression for one in parsed.values()] == [True, True, False]
    taken = with_whole_numbers(parsed)
    assert outvoted(taken) == {}
    one = agree(taken)
    read = device(tmp_path, "oslo", whole).read(one)
    assert (read.train_labels.tolist(), read.test_labels.tolist()) == ([3, 3, -1, 3], [-1])
    # Where most have classes, one with fractions is the outlier, and so is one with texts here.
    fewer = with_whole_numbers({n: parsed[n] for n in ("berlin", "oslo")})
    assert [one.is_regression for one in fewer.values()] == [True, False]
    parsed["oslo"] = device(tmp_path, "oslo", BERLIN).survey()
    reason = outvoted(with_whole_numbers(parsed))["oslo"]
    assert 'those of most devices are tables of age, colour (texts) with the number "out' in reason


def test_the_check_of_a_site_describes_its_number(tmp_path):
    assert describe_data(device(tmp_path, "berlin", MEASURED)) == (
        'tables of age, colour (texts) with the number "outcome", for training + for testing: '
        "4 + 1, 0.5 to 1"
    )
