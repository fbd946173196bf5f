"""The report: what it says of results, that nothing in them becomes code, and what is refused."""

import csv
import io
import json
import math
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.common.config import parse_config_args
from scipy.cluster.hierarchy import dendrogram, linkage

from fl_app.cli import main
from fl_app.config.run_config import parse_config
from fl_app.report import report_page as build
from fl_app.report.comparisons import COMPARISONS, TESTS_DIFFER
from fl_app.report.contents import content_of
from fl_app.report.pictures import similarity
from fl_app.report.pictures.clients import MOST_POINTS
from fl_app.report.pictures.style import strategy_styles
from fl_app.report.report_page import MOST_BYTES, build_report, write_report
from fl_app.report.sections import cluster_tables
from fl_app.report.sentences import answer, changed_options, command, question
from fl_app.report.tables import event_tables, notes_of, printed_strategies, strategy_table
from fl_app.report.text_table import as_csv, as_latex, as_markdown, render
from fl_app.results.fields import Finite, Number
from fl_app.results.grouping_report import Grouped
from fl_app.results.reading import read_result
from fl_app.run.writer import ResultsFolder, compared_tasks, write_similarity
from fl_core.json_records import checker
from strategies.rounds import replies
from strategies.rounds.round_state import Clusters, Comparison
from tests.app_runs import DEFAULTS
from tests.picture_data import marked, rows_of
from tests.report_data import EVIL, failed, write_grouping, write_matrix, write_results

NAMES = ["berlin", "oslo", "rome", "paris", "bonn", "ghent"]


@pytest.fixture(autouse=True)
def short_library(monkeypatch, request):
    """Making the script takes seconds; few tests look at it."""
    if "whole_library" not in request.fixturenames:
        monkeypatch.setattr(build, "_library", lambda: "library")


@pytest.fixture
def whole_library():
    return None


class Page(HTMLParser):
    """What a browser would see of a page: elements, and text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self._inside = [], [], []
        self.feed(text)
        self.text = " ".join(filter(None, self.words)).translate({0x2011: "-", 0xA0: " "})

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside.append(tag)

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self._inside):
            self.words.append(data.strip())


def parts_of(result, heading, **options):
    """Return the tables, sentences and pictures of a section of a result."""
    return content_of(result, **options).sections[heading]


def troubles_of(result):
    (found,) = parts_of(result, "Failures, outliers and attacks")
    return found if isinstance(found, str) else found.rows


def specs_of(text):
    (found,) = re.findall(r'<script type="application/json" id="specs">(.*?)</script>', text, re.S)
    return json.loads(found)


def rows_in(text):
    return list(csv.DictReader(io.StringIO(text)))


def with_scores(folder, scores, *, is_error=False):
    """Write a run with these scores of each strategy, by seed, and return what is read."""
    metric = "rmse" if is_error else "accuracy"

    def change(summary):
        found = []
        for one in summary["runs"]:
            if (each := scores[one["strategy"]].get(one["seed"])) is not None:
                del one["accuracy"], one["accuracy-per-client"]
                known = [score for score in each if score is not None]
                one[metric] = float(np.mean(known)) if known else None
                one[f"{metric}-per-client"] = each
                found.append(one)
        summary["runs"] = found

    seeds = 1 + max(seed for of_seed in scores.values() for seed in of_seed)
    return read_result(write_results(folder, seeds=seeds, strategies=scores, change=change))


def test_a_report_has_the_question_the_answer_and_all_sections(tmp_path):
    result = read_result(write_results(tmp_path / "mine"))
    text = build_report([result])
    page = Page(text)
    best = np.mean([run.score for run in result.of("rcc-pfl")])
    assert f"rcc-pfl reached {100 * best:.1f} % (mean over 6 clients and 2 seeds)" in page.text
    assert "Which strategy is best for 6 clients of 2 tasks on mnist-5k?" in page.text
    for words in (
        *("Strategies", "Accuracy per round", "Accuracy of each client", "Accuracy against bytes"),
        *("Who is in which cluster", "Who is like whom", "Failures, outliers and attacks"),
        *("Configuration", "Once more", "No client failed, was an outlier or attacked."),
        "0, 2, 4",  # the members of a cluster
    ):
        assert words in page.words
    assert "rcc-pfl, seed 0, ARI 1.00 against the true tasks" in page.text
    assert "Software that made these results: python 3.11.2" in page.text
    assert len(specs_of(text)) == len(COMPARISONS) + 2  # a matrix of each seed
    # No line ends between a number and its %.
    shown = text.partition("<main>")[2].partition("<script")[0]
    assert not re.search(r"\d %", shown)
    assert re.search("\\d\u00a0%", text.partition("<main>")[0])
    assert text == build_report([read_result(tmp_path / "mine")])


def test_strategies_of_a_stopped_run_are_compared_on_the_seeds_that_all_ran_on(tmp_path):
    """On seed 1, which is much easier, only the first strategy has run."""
    scores = {"rcc-pfl": {0: [0.5] * 6, 1: [1.0] * 6}, "single": {0: [0.75] * 6}}
    result = with_scores(tmp_path, scores)
    (said,) = answer(result)
    assert said == (
        "single reached 75.0 % (mean over 6 clients). That is 25.0 points more than rcc-pfl (+25.0 "
        "to +25.0). Intervals: 95 %, over 6 clients of one seed."
    )
    result.runs[0].options.update({"num-clusters": 3, "outliers": "keep"})
    assert notes_of(result.runs) == [
        "single did not run on seed 1: its means are over fewer seeds",
        "rcc-pfl: num-clusters=3 outliers=keep",
    ]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            {"rcc-pfl": 0.9, "ditto": 0.8, "single": 0.6, "local": 0.75, "random": 0.5},
            "rcc-pfl reached 90.0 % (mean over 6 clients). That is 10.0 points more than ditto ("
            "+10.0 to +10.0), 15.0 points more than local (+15.0 to +15.0), 30.0 points more than "
            "single (+30.0 to +30.0) and 40.0 points more than random",
        ),
        (  # of equal ones, those that ran first
            {"rcc-pfl": 0.9, **{f"equal {number}": 0.8 for number in range(9)}, "optimum": 0.8},
            "rcc-pfl reached 90.0 % (mean over 6 clients). That is 10.0 points more than equal 0 ("
            "+10.0 to +10.0) and 10.0 points more than optimum (",
        ),
        (
            {"rcc-pfl": 0.9336, "fedhc": 0.93363, "local": 0.8},
            "rcc-pfl and fedhc reached 93.4 % (mean over 6 clients). For rcc-pfl, that is 13.4 "
            "points more than local (+13.4 to +13.4). Intervals",
        ),
        # Their difference is less than 0.05 points, and 93.4 is not 93.3.
        ({"rcc-pfl": 0.9336, "fedhc": 0.93343}, "rcc-pfl reached 93.4 % ("),
    ],
)
def test_the_answer_names_the_best_the_worst_and_the_baselines(tmp_path, scores, said):
    result = with_scores(tmp_path, {name: {0: [one] * 6} for name, one in scores.items()})
    assert answer(result)[0].startswith(said)


MEANS = {"rcc-pfl": (0.805, 0.82, 0.844), "fedhc": (0.8,) * 3, "local": (0.6, 0.61, 0.65)}
"""Gains over fedhc of 0.5, 2 and 4.4 points: 2.3 on average, ± 4.89; p = 0.18."""


@pytest.mark.parametrize(
    ("is_error", "said"),
    [
        (
            True,
            "rcc-pfl reached RMSE 0.1770 (mean over 6 clients and 3 seeds). That is 0.2030 less "
            "than local (−0.2233 to −0.1827). No difference can be shown from fedhc (−0.02300, "
            "−0.07187 to +0.02587). Intervals: 95 %, over 3 seeds.",
        ),
        (
            False,
            "rcc-pfl reached 82.3 % (mean over 6 clients and 3 seeds). That is 20.3 points more "
            "than local (+18.3 to +22.3). No difference can be shown from fedhc (+2.3 points, −2.6 "
            "to +7.2). Intervals: 95 %, over 3 seeds.",
        ),
    ],
)
def test_the_answer_states_only_differences_that_seeds_show(tmp_path, is_error, said):
    scores = {
        name: {seed: [1 - mean if is_error else mean] * 6 for seed, mean in enumerate(means)}
        for name, means in MEANS.items()
    }
    assert answer(with_scores(tmp_path, scores, is_error=is_error)) == [said]


def test_strategies_are_ranked_by_the_clients_that_all_tested(tmp_path):
    partly = {
        "rcc-pfl": {0: [0.9, 0.9, 0.9, None, None, None]},
        "local": {0: [0.95, 0.96, 0.95, 0.5, 0.5, 0.5]},
    }
    (said,) = answer(with_scores(tmp_path, partly))
    assert said.startswith(
        "local reached 95.3 % (mean over 3 of 6 clients). That is 5.3 points more than rcc-pfl ("
    )


def test_p_values_count_only_strategies_with_data(tmp_path):
    """All six clients differ: 2 / 2⁶ for either of two strategies, by Holm twice."""
    scores = {name: {0: [level] * 6} for name, level in (("a", 0.5), ("b", 0.6), ("c", 0.7))}
    expected = {"a": "–", "b": "0.062", "c": "0.062"}
    for name, other in (("d", {0: [None] * 6}), ("e", {1: [0.9] * 6})):
        rows = strategy_table([with_scores(tmp_path / name, {**scores, name: other})], "a").rows
        assert {row[0]: row[-1] for row in rows} == {**expected, name: "–"}


def test_a_comparison_says_over_what_its_intervals_are(tmp_path):
    one, other = (with_scores(tmp_path / str(seed), {"a": {seed: [0.5] * 6}}) for seed in (0, 1))
    both = with_scores(tmp_path / "both", {"a": {0: [0.5] * 6, 1: [0.5] * 6}})
    for results, over in (
        ([one, other], "the clients"),
        ([both], "seeds"),
        ([one, both], "seeds, or the clients of one seed"),
    ):
        assert f"t interval over {over}; p" in build.describe_comparison(results, "a")


def test_names_are_never_code(tmp_path):
    names = [EVIL, "'\"><script>alert(1)</script>", "{{ 7 * 7 }}", "a\u2028b\x1b[2J", "oslo", "e"]

    def change(summary):
        summary["runs"][0]["failures"] = [failed(0, EVIL)]
        summary["runs"][1]["outliers"] = {"1": "<b>bold</b>"}
        summary["config"]["data-dir"] = "</style><script>alert(2)</script>"

    folder = write_results(tmp_path / "<img>", names=names, change=change)
    write_grouping(folder, names)
    text = build_report([read_result(folder)], title=EVIL, command=EVIL)
    page = Page(text)
    assert not {"img", "b"} & {tag for tag, _ in page.elements}
    # The data, the library and our script; no fourth.
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "specs"}, {}, {}]
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert EVIL in page.text  # and yet it is there to be read
    assert "{{ 7 * 7 }}" in page.text
    assert "49" not in page.words
    assert not {"\x1b", "\u2028"} & {*text}
    assert json.dumps(EVIL)[1:-1] in json.dumps(specs_of(text), ensure_ascii=False)


def test_the_page_may_run_its_two_scripts_and_load_nothing(tmp_path, whole_library):
    build._library.cache_clear()
    path = write_report([write_results(tmp_path)], tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    allowed = policy.partition("script-src ")[2]
    assert "unsafe-inline" not in allowed
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert [build._hash(one) for one in scripts] == allowed.split()
    assert "vegaEmbed" in scripts[0]
    links = [v for _, a in Page(text).elements for k, v in a.items() if k in ("src", "href")]
    assert links == ["data:,"]
    assert path.stat().st_size < 1_500_000


def chart_of(title, *folders):
    """Return a picture of the page of some folders, and what is said below it."""
    charts = build._charts([read_result(folder) for folder in folders])
    ((note, spec),) = [(note, spec) for name, note, spec in charts if name == title]
    return note, spec


def test_each_client_has_a_point_with_its_name(tmp_path):
    folder = write_results(tmp_path, clients=25, seeds=1, strategies=("rcc-pfl",))
    note, spec = chart_of("Accuracy of each client", folder)
    points = rows_of(spec)
    scores = sorted(read_result(folder).runs[0].scores.tolist())
    assert sorted(point["score"] for point in points) == scores
    assert {point["client"]: (point["cluster"], point["task"]) for point in points} == {
        f"client {client}": (str(client % 2), str(client % 2)) for client in range(25)
    }
    assert note.startswith("Point: one client; box: quartiles")
    # One strategy's cost has no other to be compared with.
    titles = [title for title, *_ in build._charts([read_result(folder)])]
    assert titles == ["Accuracy per round", "Accuracy of each client"]


def test_of_ten_thousand_clients_the_page_stays_small(tmp_path, whole_library):
    folder = write_results(tmp_path, clients=10_000, seeds=3)
    path = write_report([folder], tmp_path / "report.html")
    assert path.stat().st_size < 2_000_000 < MOST_BYTES
    page = Page(path.read_text(encoding="utf-8"))
    assert f"of each strategy about {MOST_POINTS} at evenly spaced ranks" in page.text
    assert "300 of 10,000 clients, the lowest accuracy first (seed 0)" in page.text
    assert "and 4,940 more" in page.text


def test_failures_outliers_and_attacks_are_listed_by_name(tmp_path):
    def change(summary):
        first = summary["runs"][0]
        first["failures"] = [failed(0, "it did not register")]
        first["clusters"][0] = -1
        first["accuracy-per-client"][:3] = [None] * 3
        first["malicious"], first["malicious-isolated"] = [2], 1.0
        first["newcomers"] = [3]
        first["outliers"] = {"4": "like no other"}
        first["models-not-stored"] = {"5": "disk full"}
        first["left-out-of-sums"] = {"3": "its keys are none of ours"}
        first["unknown-nodes"] = {"node 7": "its disk is full"}
        summary["config"]["attack"] = "sign-flip"

    folder = write_results(tmp_path, names=NAMES, change=change)
    said = "on mnist-5k, 20 % of them malicious (sign-flip)?"
    assert question(read_result(folder)).endswith(said)
    assert troubles_of(read_result(folder)) == [
        ["failed at describe", "berlin", "it did not register", "rcc-pfl/0 before training"],
        ["outlier", "bonn", "like no other", "rcc-pfl/0"],
        ["model not stored", "ghent", "disk full", "rcc-pfl/0"],
        ["left out of secure sums", "paris", "its keys are none of ours", "rcc-pfl/0"],
        ["malicious", "rome", "sign-flip; 100 % in clusters of their own", "rcc-pfl/0"],
        ["joined later", "paris", "as configured", "rcc-pfl/0"],
        ["not tested", "oslo", "sent no accuracy in the last round", "rcc-pfl/0"],
        ["left out", "node 7", "its disk is full", "rcc-pfl/0"],
    ]
    page = Page(build_report([read_result(folder)]))
    for said in (
        "One client failed: berlin; the reasons are below.",
        "One client sent impossible values and took part in no more secure sums: paris.",
        "One node could not take part",
        "paris (joined later)",
    ):
        assert said in page.text
    assert "left out" in page.words


def test_the_command_repeats_the_run(tmp_path):
    options = {"num-tasks": 3, "tasks": "0,1|2,3", "weighted-mean": True, "output-dir": "x"}
    config = read_result(write_results(tmp_path / "a", options=options)).config
    words = shlex.split(command(config))
    assert words[:2] == ["fedkin", "run"]
    given = dict(word.split("=", 1) for word in words[2:])
    again = parse_config({**DEFAULTS, **given})
    assert again == parse_config({**DEFAULTS, **config, "output-dir": ""})
    assert changed_options(config)["num-tasks"] == (3, 2)
    # Devices repeat it by Flower's command.
    options = {"dataset": "devices", "model": "cnn"}
    result = read_result(write_results(tmp_path / "b", names=NAMES, options=options))
    assert question(result).startswith("Which of these 6 devices should train together")
    words = shlex.split(command(result.config))
    assert words[:4] == ["flwr", "run", ".", "devices"]
    given = parse_config_args([words[words.index("--run-config") + 1]])
    assert given["dataset"] == "devices"
    assert parse_config({**DEFAULTS, **given}) == parse_config({**DEFAULTS, **result.config})


def test_a_grouping_alone_is_a_report(tmp_path):
    result = read_result(write_grouping(tmp_path, NAMES))
    assert question(result) == "Which of these 6 clients should train together?"
    assert answer(result)[1] == "One client in doubt: ghent."
    text = build_report([result])
    page = Page(text)
    for words in ("In doubt: 1 client(s)", "61", "90", "fedkin group num-clients=6"):
        assert words in page.words
    assert "It cost 26 kB per client for this pre-round, 355 kB for each round" in page.text
    assert "Strategies" not in page.words
    specs = specs_of(text)
    assert [len(rows_of(spec["layer"][1])) for spec in specs] == [36, 36]
    assert [one["description"].split()[0] for one in specs] == ["Relevance", "Consensus"]
    names = [f"client {number}" for number in range(50)]
    many = write_grouping(tmp_path / "many", names, lambda one: one.update(clusters=[*range(50)]))
    (grid, *_) = cluster_tables(read_result(many))
    assert grid.caption.startswith("Who should train with whom")
    assert (len(grid.rows), grid.rows[-1][0]) == (41, "10 more")


def test_a_run_without_rounds_is_a_report_of_its_clusters(tmp_path):
    def change(summary):
        for one in summary["runs"]:
            one["accuracy"] = one["accuracy-variance"] = None
            one["accuracy-per-client"] = [None] * 6

    folder = write_results(tmp_path, change=change)
    (folder / "metrics.csv").write_text("strategy,seed,round,accuracy\n", encoding="utf-8")
    text = build_report([read_result(folder)])
    page = Page(text)
    assert "Who is in which cluster" in page.words
    assert "Accuracy per round" not in page.words
    assert not [word for word in ("nan", "not tested") if word in page.text]
    assert len(specs_of(text)) == 2  # the matrices


def test_several_runs_stand_side_by_side(tmp_path):
    first = write_results(tmp_path / "a/same", options={"noise-rate": 0.1})
    second = write_results(tmp_path / "b/same", strategies=("rcc-pfl",))
    output = write_report([first, second], tmp_path / "both.html", "Noise?", "fedkin sweep x")
    text = output.read_text(encoding="utf-8")
    page = Page(text)
    assert page.words.count("Noise?") == 1
    assert {"same (2)", "noise-rate", "fedkin sweep x"} <= {*page.words}
    assert {row["series"] for row in rows_of(specs_of(text)[0])} == {
        *("rcc-pfl · same", "single · same", "rcc-pfl · same (2)")
    }
    folders = [first, write_grouping(tmp_path / "grouped", NAMES)]
    for order in (folders, folders[::-1]):
        assert main(["report", *map(str, order), "--compare=single", f"--output={output}"]) == 0
        assert "Difference from single" in output.read_text(encoding="utf-8")


@pytest.fixture
def three_seeds(tmp_path):
    """Gains over rcc-pfl of 2.3 points on average, ± 4.89, and of −18 ± 6.57."""
    means = MEANS | {"rcc-pfl": MEANS["fedhc"], "fedhc": MEANS["rcc-pfl"]}

    def change(summary):
        for one in summary["runs"]:
            mean = means[one["strategy"]][one["seed"]]
            one["accuracy"] = mean
            one["accuracy-per-client"] = (mean + np.linspace(-0.05, 0.05, 8)).tolist()
        summary["config"] |= {"noise": "uniform", "noise-rate": 0.1}

    return write_results(tmp_path / "mine", clients=8, seeds=3, strategies=means, change=change)


def test_strategies_are_compared_with_one(three_seeds, tmp_path, capsys):
    paths = [tmp_path / f"t.{ending}" for ending in ("csv", "tex", "md")]
    words = [word for path in paths for word in ("--table", str(path))]
    names = ["--names", "rcc-pfl=RCC-PFL,fedhc=Fed HC", "--bold", "best"]
    assert main(["report", str(three_seeds), "--compare", "rcc-pfl", *words, *names]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"report    {three_seeds / 'report.html'}\n")
    assert said.endswith("".join(f"table     {path}\n" for path in paths))
    assert "That is 18.0 points more than local (+11.4 to +24.6). No difference can be" in said
    assert "shown from fedhc (−2.3 points, −7.2 to +2.6). Intervals: 95 %, over 3 seeds." in said
    page = (three_seeds / "report.html").read_text(encoding="utf-8")
    vary = "the partition of the data, the label noise, the initial model and the order of batches"
    assert f"Between seeds vary {vary}." in page
    exact, tex, markdown = (path.read_text(encoding="utf-8") for path in paths)
    rows = {row["strategy"]: row for row in rows_in(exact)}
    assert float(rows["local"]["difference"]) == pytest.approx(-0.18)
    low = -0.18 - 4.3027 * 0.026458 / 3**0.5
    assert float(rows["local"]["difference-low"]) == pytest.approx(low, abs=1e-5)
    # All eight clients differ in one direction: 2 / 2⁸ for either strategy, by Holm twice.
    assert [row["p-of-clients"] for row in rows.values()] == ["", "0.015625", "0.015625"]
    assert tex.splitlines()[3] == (
        r"strategy & accuracy \% & ARI & difference from RCC-PFL & p of clients \\"
    )
    assert tex.splitlines()[6] == (
        r"Fed HC & \textbf{82.3 $\pm$ 2.0} & 1.00 & +2.3 ($-$2.6 to +7.2) & 0.016 \\"
    )
    assert "| RCC-PFL | **80.0 ± 0.0** |" in markdown
    assert "| local | 62.0 ± 2.6 |" in markdown


def test_columns_are_chosen_by_their_names(three_seeds, tmp_path, capsys):
    people, exact = tmp_path / "t.md", tmp_path / "t.csv"
    words = ["report", str(three_seeds), "--table"]
    assert main([*words, str(people), "--columns", "clusters,accuracy"]) == 0
    assert people.read_text(encoding="utf-8").startswith("| strategy | clusters | accuracy % |\n")
    std = ["--columns", "accuracy,accuracy-std"]
    assert main([*words, str(exact), *std, "--names", "fedhc=FedHC"]) == 0
    lines = exact.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "strategy,accuracy,accuracy-std"
    assert [line.partition(",")[0] for line in lines[1:]] == ["rcc-pfl", "FedHC", "local"]
    for wrong, said in (
        (std, '--columns names "accuracy-std", but there are accuracy, low'),
        (["--names", "typo=X"], '--names has "typo", but there are rcc-pfl, fedhc, local.'),
        (["--compare", "single"], '--compare is "single", but there are rcc-pfl, fedhc, local.'),
    ):
        assert main([*words, str(people), *wrong]) == 2
        assert said in capsys.readouterr().err


def test_pictures_are_drawn_again_in_another_width_with_other_names(three_seeds, tmp_path):
    output = tmp_path / "here/report.html"
    write_grouping(three_seeds, [*NAMES, "x", "y"])
    words = ["--output", str(output), "--figures", "svg", "--width", "3in"]
    assert main(["report", str(three_seeds), *words, "--names", "rcc-pfl=Ours"]) == 0
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in output.parent.glob("*.svg")}
    assert {*COMPARISONS, "similarity-local-seed-2", "grouping"} <= {*drawn}
    for name in COMPARISONS:
        assert float(re.search(r'width="([\d.]+)"', drawn[name])[1]) == pytest.approx(216, abs=3)
        assert "Ours" in drawn[name]
        assert "rcc-pfl" not in drawn[name]
        assert strategy_styles(["rcc-pfl"])["rcc-pfl"].colour in drawn[name]
    with pytest.raises(SystemExit):
        main(["report", str(three_seeds), "--width", "3"])


def test_pictures_have_the_names_that_a_run_gives_them(tmp_path):
    """Those of a number are not called accuracy, and verdicts are among them."""
    gain = {"mean": 0.2, "low": 0.1, "high": 0.3, "observed": 0.2, "probability": 0.99}
    verdict = {"client": 0, "verdict": "join", "strategy": "rcc-pfl", "cluster": 0}
    verdict |= {"validation-samples": 9, "compared": "rcc-pfl", "gains": {"rcc-pfl": gain}}
    means = {"rcc-pfl": [0.1, 0.0, 0.2]}

    def change(summary):
        for one in summary["runs"]:
            one["rmse"], one["rmse-per-client"] = 0.5, [0.5] * 6
            del one["accuracy"], one["accuracy-per-client"]
        summary["verdicts"] = [{"seed": 0, "clients": [verdict], "means": means}]

    folder = write_results(tmp_path, seeds=1, change=change)
    (folder / "metrics.csv").unlink()
    assert main(["report", str(folder), "--figures", "svg"]) == 0
    assert {path.stem for path in folder.glob("*.svg")} == {
        *("rmse-per-client", "rmse-against-bytes", "verdicts", "similarity-rcc-pfl-seed-0")
    }


def test_a_sweep_is_the_report_of_its_cells(tmp_path):
    for rate in ("0", "0.2", "0.9"):
        write_results(tmp_path / f"cells/noise-rate={rate}", seeds=1)
    (tmp_path / "sweep.csv").write_text("cell\nnoise-rate=0\nnoise-rate=0.2\n", encoding="utf-8")
    (tmp_path / "report.html").write_text("of the sweep", encoding="utf-8")
    table = tmp_path / "t.csv"
    assert main(["report", str(tmp_path), "--table", str(table)]) == 0
    runs = dict.fromkeys(row["run"] for row in rows_in(table.read_text(encoding="utf-8")))
    assert list(runs) == ["noise-rate=0", "noise-rate=0.2"]
    assert not (tmp_path / "cells.html").exists()
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "cells.html").read_text(encoding="utf-8")
    assert "The best strategies of each run" in page
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "of the sweep"


def test_strategies_that_still_improve_are_named(tmp_path):
    def change(summary):
        summary["runs"][1]["still-improving"] = True

    result = read_result(write_results(tmp_path, change=change))
    said = "still improving: single; more rounds (num-server-rounds) may change the order"
    assert notes_of(result.runs) == [said]
    assert said in build._strategies([result]).caption
    assert said in render(printed_strategies(result.runs)).replace("\n", " ")


def test_tables_are_exact_for_programs_and_escaped_for_people(tmp_path):
    def change(summary):
        for one in summary["runs"]:
            one["strategy"] = {"rcc-pfl": "=a_b|c&$", "single": "[x\\y"}[one["strategy"]]

    result = read_result(write_results(tmp_path, change=change))
    table = strategy_table([result])
    rows = rows_in(as_csv(table))
    assert [row["strategy"] for row in rows] == ["'=a_b|c&$", "[x\\y"]  # no formula
    mean = np.mean([one.score for one in result.runs[::2]])
    assert float(rows[0]["accuracy"]) == pytest.approx(mean, rel=1e-11)
    assert as_markdown(table).splitlines()[2].startswith(r"| =a\_b\|c\&\$ | ")
    lines = as_latex(table).splitlines()
    assert lines[5].startswith(r"=a\_b\textbar{}c\&\$ & ")
    assert lines[6].startswith(r"{[}x\textbackslash{}y & ")  # no length of the line before
    assert r"$\pm$" in lines[5]
    assert {line.count(" & ") for line in lines[5:7]} == {len(table.columns) - 1}
    with pytest.raises(ValueError, match="has no tested strategy for a table: leave out"):
        strategy_table([replace(result, runs=())])


def test_two_tests_have_two_columns_on_the_page_and_in_tables(tmp_path):
    def change(summary):
        for one in summary["runs"]:
            accuracies = [0.75, 0.25, *[None] * (one["num-clients"] - 2)]
            one["on-its-own-data"] = {"accuracy": 0.5, "accuracy-per-client": accuracies}

    result = read_result(write_results(tmp_path, change=change))
    table = strategy_table([result])
    assert table.columns[1:3] == ["on its task %", "on its own data %"]
    assert "accuracy %" not in table.columns
    (row, *_) = rows_in(as_csv(table))
    assert row["accuracy"] == row["accuracy-on-its-task"]
    assert float(row["accuracy-on-its-own-data"]) == 0.5
    assert table.rows[0][2].split()[0] == "50.0"
    task, own = answer(result)
    assert task.startswith("Each client tested on its task, ")
    assert own.startswith("Each client tested on its own data, rcc-pfl and single reached 50.0 %")
    page = build_report([result])
    for text in ("much of which that client", ">on its own data %<", ">rcc-pfl: % on its own data"):
        assert text in page
    # Where a run has one test, both its column and the others' are there.
    mixed = strategy_table([result, read_result(write_results(tmp_path / "alone"))])
    assert mixed.columns[2:5] == ["accuracy %", "on its task %", "on its own data %"]
    assert mixed.rows[-1][3:5] == ["–", "–"]


def test_runs_with_and_without_a_user_metric_share_a_table(tmp_path):
    def measured(name, value):
        def change(summary):
            for one in summary["runs"]:
                each = [value] * one["num-clients"]
                one |= {"user-metric-name": name, "user-metric": value}
                one |= {"user-metric-per-client": each}

        return read_result(write_results(tmp_path / name, change=change))

    plain, mcc = read_result(write_results(tmp_path / "plain")), measured("mcc", 0.25)
    for order in ([plain, mcc], [mcc, plain]):
        table = strategy_table(order)
        assert {*map(len, table.rows)} == {len(table.columns)}
        place = table.columns.index("mcc")
        assert {row[0]: row[place] for row in table.rows} == {plain.name: "–", mcc.name: "0.2500"}
    rows = rows_in(as_csv(strategy_table([mcc, measured("cost", 7.0)])))
    assert [row["user-metric-mcc"] for row in rows[::2]] == ["0.25", ""]
    assert [row["user-metric-cost"] for row in rows[::2]] == ["", "7"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("summary.json", content) for content in (b"{", b"[]", b"[" * 100_000, b"\xff\xfe")),
        ("metrics.csv", b"a,b\n1,2\n"),
        ("grouping.json", b"{}"),
        ("similarity-rcc-pfl-seed-0.npz", b"PK"),
    ],
)
def test_broken_files_are_one_sentence(tmp_path, capsys, name, content):
    folder = write_results(tmp_path / "mine")
    (folder / name).write_bytes(content)
    assert main(["report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"{name} is not a valid result file" in error
    assert error.count("\n") == 1
    assert not (folder / "report.html").exists()


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


def test_nothing_is_unpickled(tmp_path):
    folder = write_results(tmp_path / "mine", clients=2)
    trace = tmp_path / "trace"
    np.savez(
        folder / "similarity-rcc-pfl-seed-0.npz",
        clients=np.array([Trap(trace), 1], object),
        similarity=np.eye(2),
        merges=np.zeros((0, 4)),
    )
    with pytest.raises(ValueError, match=r"seed-0\.npz is not a valid result file"):
        read_result(folder)
    assert not trace.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(version=2),
        lambda one: one.update(runs=[]),
        lambda one: one["config"].update(strategy=["x"]),
        lambda one: one["runs"][0].update(clusters=[0]),
        lambda one: one["runs"][0].update({"accuracy-per-client": [2] * 6}),
        lambda one: one["runs"][0].update(accuracy=1e308),
        lambda one: one["runs"][0].update({"accuracy-per-client": "x"}),
        lambda one: one["runs"][0].update(failures=[failed(6, "there is no such client")]),
        lambda one: one["runs"][0].update(malicious=[-1]),
        lambda one: one["runs"][0].pop("bytes"),
        lambda one: one["runs"][0].update(seconds={"total": "soon"}),
        lambda one: one["runs"][0].update(bytes=dict.fromkeys(one["runs"][0]["bytes"], 1e308)),
        lambda one: one["runs"][0].update(tuned={"values": {"loss": ["x"]}, "tried": []}),
    ],
)
def test_hostile_values_are_one_sentence(tmp_path, change):
    folder = write_results(tmp_path, change=change)
    said = r"^[^\n]*summary.json is not a valid result file \([^\n]*\): [^\n]*$"
    with pytest.raises(ValueError, match=said):
        read_result(folder)


def test_the_largest_error_that_a_client_may_send_can_be_read():
    for kind in (Number, Finite):
        assert checker(kind).validate_python(replies._LARGEST) == replies._LARGEST


@pytest.mark.parametrize("key", ["relevance", "together"])
def test_clients_are_not_infinitely_near(tmp_path, key):
    def change(grouping):
        grouping[key][0][1] = grouping[key][1][0] = 1e20

    said = r"grouping.json is not .*a similarity is larger than 1e\+12"
    with pytest.raises(ValueError, match=said):
        read_result(write_grouping(tmp_path, NAMES[:3], change))


def test_a_wrong_ending_or_folder_is_refused_before_anything_is_written(tmp_path, capsys):
    folder = write_results(tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    for words, said in (
        ([folder, "--table", "table.doc"], "table.doc: give a file that ends with .csv, .md or"),
        ([tmp_path / "absent"], "is not a folder: give the results folder of a run."),
        ([tmp_path / "empty"], "has neither summary.json nor"),
        ([folder, "--output", tmp_path], f"--output is {tmp_path}, which is not a file: give a"),
    ):
        assert main(["report", *map(str, words)]) == 2
        assert said in capsys.readouterr().err
    assert not (folder / "report.html").exists()


def test_a_page_that_would_be_too_large_is_not_written_and_fails_no_run(
    tmp_path, monkeypatch, caplog
):
    caplog.set_level("DEBUG")
    folder = write_results(tmp_path / "run", clients=20, seeds=3)
    text = build_report([read_result(folder)], most_pictures=1)
    assert "Left out for room: 2. The folder has them." in text
    monkeypatch.setattr(build, "MOST_BYTES", 500)
    with pytest.raises(ValueError, match="name fewer of them"):
        write_report([folder], tmp_path / "too-large.html")
    assert not (tmp_path / "too-large.html").exists()
    write_grouping(tmp_path, NAMES)
    ResultsFolder(parse_config({**DEFAULTS, "output-dir": str(tmp_path)})).finish_grouping()
    assert "no report.html: the report of 1 folders would have" in caplog.text
    assert f"results   {tmp_path / 'grouping.json'}" in caplog.text


def test_the_matrix_has_the_tree_of_scipy_however_deep_it_is():
    points = np.random.default_rng(0).uniform(size=(30, 2))
    for merges in (linkage(points, "single"), linkage(points, "ward")):
        order, links = similarity._tree(merges, range(30))
        tree = dendrogram(merges, no_plot=True)
        assert order == tree["leaves"]
        expected = [
            ([x / 10 for x in across], up)
            for across, up in zip(tree["icoord"], tree["dcoord"], strict=True)
        ]
        assert sorted((across, up) for across, up, _ in links) == sorted(expected)
        assert all(joins for _, _, joins in links)
    chain = linkage(np.cumsum(np.arange(1.0, 2001))[:, None], "single")
    order, links = similarity._tree(chain, [0] * 2000)
    assert sorted(order) == list(range(2000))
    assert len(links) == 1999
    assert not any(joins for _, _, joins in links)


def test_the_mean_number_of_clusters_counts_each_seed(tmp_path):
    def change(summary):
        for one in summary["runs"]:
            one["clusters"] = [0, 1, 0, 1, 0, 1]
        one["clusters"] = [0, 1, 2, 3, 4, 4]

    folder = write_results(tmp_path, seeds=4, strategies=("rcc-pfl",), change=change)
    table = strategy_table([read_result(folder)])
    assert table.exact[0][table.exact_columns.index("clusters")] == 2.75
    assert "2/5" in table.rows[0]


def test_clients_that_were_not_tested_are_last_and_failures_only_if_they_were_asked(tmp_path):
    def change(summary):
        summary["runs"][0]["accuracy-per-client"][0] = None

    result = read_result(write_results(tmp_path / "all", seeds=1, change=change))
    rows = parts_of(result, "Who is in which cluster")[-1].rows
    assert rows[-1][0] == "0"
    assert float(rows[0][2]) == round(100 * np.nanmin(result.runs[0].scores), 1)
    assert troubles_of(result)[0][0] == "not tested"
    some = {"fraction-evaluate": 0.5}
    result = read_result(write_results(tmp_path / "some", options=some, change=change))
    assert troubles_of(result) == "No client failed, was an outlier or attacked."


def test_a_grouping_names_excluded_clients_and_outliers(tmp_path):
    def change(found):
        found["clusters"][0] = -1
        found["outliers"] = {"oslo": "it sent nothing usable"}
        found["unknown_nodes"] = {"node 7": "lyon: no <images>"}

    result = read_result(write_grouping(tmp_path, NAMES, change))
    assert "One node could not take part" in build_report([result])
    assert troubles_of(result) == [
        ["left out", "berlin", "is in no cluster", "grouping"],
        ["left out", "node 7", "lyon: no <images>", "grouping"],
        ["outlier", "oslo", "it sent nothing usable", "grouping"],
    ]


def test_a_grouping_alone_has_the_tree_that_made_its_clusters(tmp_path):
    folder = write_grouping(tmp_path, NAMES)
    write_matrix(folder, "rcc-pfl", 0, [0, 1, 0, 1, 0, 1], late=1)
    with np.load(folder / "similarity-rcc-pfl-seed-0.npz") as saved:
        merges = saved["merges"]
    (first,) = read_result(folder).matrices
    assert np.array_equal(first.merges, merges)
    assert (first.names, first.measure) == (NAMES, "relevance")
    (title, note, _), more = parts_of(read_result(folder), "Who is like whom", most_pictures=1)
    assert title == "Consensus between clients"
    assert more == "Left out for room: 1. The folder has them."
    assert note.startswith("Frames: 2 clusters")
    # Which of several belongs to grouping.json is not known.
    write_matrix(folder, "rcc-pfl", 1, [0, 1, 0, 1, 0, 1])
    assert read_result(folder).matrices == []


def test_a_client_without_numbers_takes_no_matrix_from_the_others(tmp_path):
    def change(found):
        for name in ("together", "relevance"):
            for place in range(6):
                found[name][0][place] = found[name][place][0] = None

    shown = parts_of(read_result(write_grouping(tmp_path, NAMES, change)), "Who is like whom")
    assert len(shown) == 2
    for _, _, spec in shown:
        assert len(rows_of(spec["layer"][1])) == 25
        assert {row["name"] for row in rows_of(marked(spec, "text")[-1])} == set(NAMES[1:])


def test_folders_of_the_same_name_get_distinct_names(tmp_path):
    found = [read_result(write_results(tmp_path / place)) for place in ("x/a", "y/a", "a (2)")]
    assert [one.name for one in build.distinct(found)] == ["a", "a (2)", "a (2) (2)"]


def two_tests(first, other):
    """Return what gives each run two tests: 0.9 on its task, 0.6 on its own data."""
    scores = {"on-its-task": 0.9, "on-its-own-data": 0.6}

    def change(summary):
        for one in summary["runs"]:
            of = {
                test: {"accuracy": score, "accuracy-per-client": [score] * one["num-clients"]}
                for test, score in scores.items()
            }
            one |= {**of[first], other: of[other]}

    return change


def test_runs_are_compared_in_the_test_that_they_share(tmp_path):
    task, own = "on-its-task", "on-its-own-data"
    changes = {"a": two_tests(task, own), "b": two_tests(own, task), "c": None}
    a, b, c = (
        read_result(write_results(tmp_path / name, seeds=1, strategies=("x",), change=change))
        for name, change in changes.items()
    )
    (rounds, *_), (clients, *_) = build._charts([a])
    assert rounds == "Accuracy on its task per round"
    assert clients == "Accuracy on its task of each client"
    (title, said, _), (_, note, spec), (_, _, costs) = build._charts([a, b])
    assert title == "Accuracy per round"
    assert said.endswith(TESTS_DIFFER)
    assert TESTS_DIFFER not in note
    assert {point["score"] for point in rows_of(spec)} == {0.9}
    assert {point["mean"] for point in rows_of(costs)} == {0.9}
    assert costs["layer"][0]["encoding"]["y"]["title"] == "test accuracy on its task"
    table = strategy_table([a, b])
    lowest = table.columns.index("lowest %")
    assert [row[lowest] for row in table.rows] == ["90.0", "90.0"]
    assert "variance: of the accuracy on its task in percent" in build._strategies([a, b]).caption

    table, alone = strategy_table([a, b, c]), c.runs[0].score
    assert [row[2] for row in table.rows] == ["–", "–", f"{100 * alone:.1f}"]
    assert "tests differ" in build._strategies([a, b, c]).caption
    (_, note, _) = build._charts([a, b, c])[1]
    assert note.endswith(TESTS_DIFFER)


def test_a_mean_is_over_seeds_in_pictures_as_in_tables_and_counts_clients_of_all(tmp_path):
    scores = {0: [0.9] * 6, 1: [0.5, 0.5, None, None, None, None]}
    result = with_scores(tmp_path, {"rcc-pfl": scores})
    (_, spec) = chart_of("Accuracy of each client", tmp_path)
    assert rows_of(spec)[0]["strategy"] == "rcc-pfl\nmean 70.0 %, 4 not tested"
    assert strategy_table([result]).rows[0][1].startswith("70.0 ")
    assert "mean over 2 to 6 of 6 clients" in build._strategies([result]).caption


def test_a_printed_table_cuts_neither_a_number_nor_a_title(tmp_path):
    def change(summary):
        for one in summary["runs"]:
            one |= {"rmse": 52345.6, "rmse-per-client": [52345.6] * 6, "mae": 1.5e-7, "r2": -1234.5}
            del one["accuracy"], one["accuracy-per-client"]
            one |= {"user-metric-name": "loss", "user-metric": 3.25e9}
            one["user-metric-per-client"] = [3.25e9] * 6
            one["bytes"] = dict.fromkeys(one["bytes"], 25e9)
            one |= {"malicious": [0], "malicious-isolated": 1.0}

    folder = write_results(tmp_path, strategies=("spectral+mean+ditto", "single"), change=change)
    runs = read_result(folder).runs
    printed = render(printed_strategies(runs))
    assert "…" not in printed
    numbers = {"52346", "1.500e-07", "-1234", "3.250e+09", "8,333,333"}
    assert {*numbers, "single"} <= {*printed.split()}
    (table,) = event_tables(runs)
    assert render(table).splitlines()[0] == table.caption
    assert {row[1] for row in table.rows} == {"100"}
    left_out = [replace(run, isolated=math.nan) for run in runs]
    assert {row[1] for row in event_tables(left_out)[0].rows} == {""}


def test_tasks_of_a_matrix_are_those_of_when_clients_were_compared(tmp_path):
    folder = write_results(tmp_path, seeds=1, strategies=("rcc-pfl",))
    path = folder / "similarity-rcc-pfl-seed-0.npz"
    with np.load(path) as saved:
        saved_arrays = dict(saved)
    np.savez(path, **saved_arrays, tasks=np.arange(6))
    (matrix,) = read_result(folder).matrices
    assert matrix.tasks == list(range(6))
    np.savez(path, **saved_arrays, tasks=np.arange(5))
    with pytest.raises(ValueError, match=r"npz is not a valid result file"):
        read_result(folder)


@pytest.mark.parametrize(("number", "task"), [(2, 0), (3, 1)])
def test_a_matrix_has_the_tasks_of_its_round_and_the_scores_of_a_late_client(
    tmp_path, number, task
):
    near, merges = np.eye(2), np.array([[0, 1, 1, 2.0]])
    late = {2: np.array([0.3, 0.4])}
    compared = Comparison((0, 1), near, merges, round=number, late=late)
    clusters = Clusters({0: 0, 1: 0, 2: 1}, comparison=compared)
    federation = SimpleNamespace(
        knows_tasks=True, tasks_at=lambda number: np.array([number >= 3, 0, 1]).astype(int)
    )
    tasks = compared_tasks(SimpleNamespace(clusters=clusters), federation)
    write_similarity(tmp_path / "one.npz", Grouped("flt", 0, clusters, list("abc"), tasks=tasks))
    with np.load(tmp_path / "one.npz") as saved:
        assert saved["tasks"].tolist() == tasks == [task, 0, 1]
        assert saved["clients"].tolist() == [0, 1, 2]
        expected = [[1, 0, 0.3], [0, 1, 0.4], [0.3, 0.4, np.nan]]
        np.testing.assert_array_equal(saved["similarity"], expected)
