"""Writes the tables of what was measured into pages: `python -m benchmarks.pages`.

So each measurement stands in one place, beside its numbers, and other pages link to it.
"""

from collections.abc import Mapping, Sequence

from benchmarks import (
    certainty,
    feature_kinds,
    many_devices,
    natural,
    outliers,
    placing,
    principal_angles,
    privacy,
    rebuilt,
    scale,
    verdicts,
)
from benchmarks.writing import ROOT, markdown, measured, run_of
from fl_app.report.tables import event_tables, strategy_table
from fl_app.report.text_table import render
from fl_app.results.reading import Result
from fl_app.results.schema import Run
from fl_core.json_records import checker

HERE = "Written by `python -m benchmarks.pages` from the files that each section names."
ALL = "All strategies"
COMPARED = {"mnist-5k": "all", "MNIST": "mnist", "Fashion-MNIST": "fashion-mnist"}
# `strategy=all` has grown since: PACFL, FedClust and FedGroup have another section.
THEN_ALL = (
    "strategy=rcc-pfl,mt-hfl,flt,flt-graph,fedhc,ifca-pfl,ifca,fedsem,cfl-stable,pca-km-hc,optimum,random,"
    "single,local"
)
COMMON = "repeats=5 num-tasks=3 noise=class-dependent model=mlp weighted-mean=false"
CONCEPT = (
    "num-clients=10 num-tasks=2 shift=concept model=mlp weighted-mean=false optimizer=sgd "
    "learning-rate=0.1 num-server-rounds=10 evaluate-every=10 repeats=3"
)
ROTATED = (
    "dataset=rotated-mnist num-clients=1200 num-tasks=4 partition=equal minority=0 optimizer=sgd "
    "learning-rate=0.1 weight-decay=0 batch-size=20 local-epochs=5 num-server-rounds=40 "
    "evaluate-every=20 fraction-train=0.1"
)
SGD = "optimizer=sgd learning-rate=0.1"
TWENTY = "num-server-rounds=20 evaluate-every=5"
MNIST = "dataset=mnist num-server-rounds=8 evaluate-every=8"
# By heading, the files in experiments/results/runs and the options of `fedkin run` that made them.
RUNS = {
    ALL: {
        "all": f"{THEN_ALL} {COMMON} {TWENTY}",
        "mnist": f"{THEN_ALL} {COMMON} {MNIST}",
        "fashion-mnist": f"{THEN_ALL} {COMMON} dataset=fashion-mnist num-server-rounds=6 "
        "evaluate-every=6",
    },
    "PACFL, FedClust and FedGroup": {
        "grouped-once": f"strategy=pacfl,fedclust,fedgroup {COMMON} {TWENTY}",
        "fedclust-ward": f"strategy=fedclust linkage=ward {COMMON} {TWENTY}",
        "grouped-once-right-labels": "strategy=fedclust,fedgroup repeats=5 num-tasks=3 model=mlp "
        f"weighted-mean=false {TWENTY}",
    },
    "FedHC, IFCA-PFL and PCA read otherwise": {
        "other-readings": f"strategy=fedhc,ifca-pfl,pca-km-hc {COMMON} {TWENTY} "
        "update-reference=received initial-models=warm centroid-coordinates=pixels",
    },
    "CFL-stable with the other optimizer": {
        "cfl-sgd": f"strategy=cfl-stable,single {COMMON} {SGD} num-server-rounds=20 "
        "evaluate-every=20",
        "cfl-sgd-mnist": f"strategy=cfl-stable,single {COMMON} {SGD} {MNIST}",
        "cfl-sgd-fashion-mnist": f"strategy=cfl-stable,single {COMMON} {SGD} dataset=fashion-mnist "
        "num-server-rounds=8 evaluate-every=8",
    },
    "FLT with a fifth of the clients in each round": {
        "flt-participation": f"strategy=flt,flt-graph {COMMON} num-server-rounds=20 "
        "evaluate-every=10 fraction-train=0.2",
    },
    "Labels that mean different things": {
        "concept-shift": "strategy=rcc-pfl,flt,fedhc,ifca,fedsem,cfl-stable,optimum,single "
        f"{CONCEPT}",
    },
    "IFCA's rotated MNIST": {
        "ifca-rotated-mnist": f"strategy=ifca {ROTATED}",
        "single-rotated-mnist": f"strategy=single {ROTATED}",
    },
    "Newcomers, and tasks that change": {
        "dynamic": "strategy=flt,rcc-pfl,ifca-pfl,optimum,single num-clients=20 num-tasks=2 "
        "model=mlp weighted-mean=false newcomers=3 newcomer-round=4 drift-clients=4 drift-round=7 "
        "num-server-rounds=11",
    },
}


def written() -> dict[str, str]:
    """Return the pages by their paths."""
    parts = {
        "Strategies": {**_runs(), **_pacfl()},
        "Features": _features(),
        "Grouping": _grouping(),
        "Privacy": _privacy(),
        "Robustness": _robustness(),
        "Scale": _scale(),
    }
    return {
        "benchmarks/results/README.md": _page(
            "What was measured",
            {
                title: "\n\n".join(f"### {heading}\n\n{text}" for heading, text in part.items())
                for title, part in parts.items()
            },
        ),
        "docs/measured/verdicts.md": _page("Verdicts, measured", _verdicts()),
    }


def compared() -> str:
    """Return the table of docs/methods.md: a row per strategy, of three committed runs."""
    summaries = {name: run_of(file) for name, file in COMPARED.items()}
    seeds = {name: len({run["seed"] for run in s["runs"]}) for name, s in summaries.items()}
    titles = [f"{name}, {seeds[name]} seeds: accuracy % | ARI" for name in summaries]
    lines = [f"| strategy | {' | '.join(titles)} |", "| --- " * (1 + 2 * len(titles)) + "|"]
    tables = [{row["strategy"]: row for row in s["table"]} for s in summaries.values()]
    (warm,) = (r for r in run_of("other-readings")["table"] if r["strategy"] == "ifca-pfl")
    for strategy in tables[0]:
        if strategy == "ifca-pfl":
            lines.append(f"| ifca-pfl, warm models | {_scores(warm)} | – | – | – | – |")
        cells = [_scores(table[strategy]) for table in tables]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _scores(row: Mapping[str, float]) -> str:
    accuracy = f"{100 * row['accuracy-mean']:.1f} ± {100 * row['accuracy-std']:.1f}"
    return f"{accuracy} | {row['ari-mean']:.2f}"


def _page(title: str, sections: Mapping[str, str]) -> str:
    parts = [f"# {title}", HERE]
    for heading, text in sections.items():
        parts += [f"## {heading}", text]
    return "\n\n".join(parts) + "\n"


def _source(name: str, command: str) -> str:
    link = f"[The numbers](../../benchmarks/results/{name}.json.xz)"
    return f"{link}, by `python -m benchmarks.{command}`."


def _link(run: str) -> str:
    return f"[{run}](../../experiments/results/runs/{run}.json.xz)"


def _runs() -> dict[str, str]:
    """Return the commands and a table of the committed runs under each heading."""
    sections = {}
    for heading, runs in RUNS.items():
        commands = "\n".join(f"fedkin run {options}" for options in runs.values())
        table = _costs(list(runs)) if heading == ALL else _found(list(runs))
        sections[heading] = f"```sh\n{commands}\n```\n\n{table}"
    return sections


def _runs_of(name: str) -> list[Run]:
    runs: list[Run] = checker(list[Run]).validate_python(run_of(name)["runs"])
    return runs


def _columns(name: str) -> dict[str, list[str]]:
    """Return what the table of strategies of a run has, by its heads."""
    table = strategy_table([Result(name="", runs=_runs_of(name))])
    return {head: [row[place] for row in table.rows] for place, head in enumerate(table.columns)}


def _found(names: Sequence[str]) -> str:
    """Return the table of some runs, and below it what happened in them."""
    heads = ("strategy", "accuracy %", "ARI", "clusters", "pre-round kB", "training kB", "seconds")
    lines = []
    for name in names:
        columns = _columns(name)
        rows = zip(*(columns[head] for head in heads), strict=True)
        lines += [(_link(name), *row) for row in rows]
    events = [render(one) for name in names for one in event_tables(_runs_of(name))]
    return markdown(("run", *heads), lines) + "".join(f"\n\n```\n{one}```" for one in events)


def _costs(names: Sequence[str]) -> str:
    """Return what the page on strategies does not say of the runs of all, side by side."""
    tables = {name: _columns(name) for name in names}
    links = " / ".join(map(_link, names))
    heads = ("variance", "pre-round kB", "training kB", "seconds")
    lines = []
    for place, strategy in enumerate(tables[names[0]]["strategy"]):
        cells = ([one[head][place] for one in tables.values()] for head in heads)
        unequal = (texts[:1] if len(set(texts)) == 1 else texts for texts in cells)
        lines.append((strategy, *map(" / ".join, unequal)))
    return (
        f"{links}; accuracy and ARI are in [methods.md](../../docs/methods.md#compared-on-three-"
        f"data-sets). The variance is over clients.\n\n{markdown(('strategy', *heads), lines)}"
    )


def _pacfl() -> dict[str, str]:
    tables = principal_angles.tables(measured("principal-angles"))
    source = _source("principal-angles", "principal_angles")
    return {
        "PACFL's readings: tasks": (
            "Three vectors, average linkage, the number of clusters given. "
            f"{source}\n\n{tables['tasks']}"
        ),
    }


def _features() -> dict[str, str]:
    tables = feature_kinds.tables(measured("features"))
    source = _source("features", "feature_kinds")
    return {
        "What they were chosen on": (
            "ARI against what is known, with the number of clusters given; "
            "20 eigenvectors with `paper`, five with `missed-energy`. Watch: 20 arms, 40 halves of "
            "their recordings, 20 halves of people's, or 10 and 20 clients that hold groups of "
            "exercises; digits: 10 and 25 clients. Means over three seeds and both numbers of "
            f"clients where labels are cut. {source}\n\n{tables['chosen']}"
        ),
        "What confirmed them": (
            "Other windows, cuts and seeds, and flights, looked at only then.\n\n"
            f"{tables['confirmed']}"
        ),
    }


def _grouping() -> dict[str, str]:
    sure, placed = (measured(name) for name in ("certainty", "placing"))
    wrong = {one["relevance"]: one for one in sure["summary"]}
    paper, missed = (wrong[name] for name in ("paper", "missed-energy"))
    return {
        "How sure clusters are": (
            "25 clients with 6, 20 or 40 images each, of mnist-5k and Fashion-MNIST, "
            f"{sure['seeds']} seeds, {sure['resamples']} resamples, each without a fifth of every "
            "client's images. A client is wrong if most of "
            f"its cluster have another task: {paper['wrong']:,} of {paper['clients']:,} with the "
            f"paper's relevance, {missed['wrong']:,} with `missed-energy`. AUC: how often a wrong "
            "client is less certain than a right one (0.5: by chance). Similar: federations of one "
            "task, where all should be in doubt. The last columns: per cent that are right, of the "
            "clients with this certainty (that of 50 to 70 % is left out). "
            f"{_source('certainty', 'certainty')}\n\n"
            f"{certainty.tables(sure)['certainty']}"
        ),
        "Clients that come later": (
            f"25 clients, {placed['seeds']} seeds, `missed-energy`; each client is left out and "
            "placed (right, fits), and placed among the other tasks' clients alone (rejected: it "
            f"fits no cluster, as it should). {_source('placing', 'placing')}\n\n"
            f"{placing.tables(placed)['placing']}"
        ),
    }


def _privacy() -> dict[str, str]:
    tables = privacy.tables(measured("privacy"))
    source = _source("privacy", "privacy")
    images = rebuilt.tables(measured("rebuilt"))["rebuilt"]
    return {
        "Which classes a device holds": (
            "A server with public images guesses from eigenvectors. AUC: how often a class of the "
            "device's task is ranked above another (0.5: by chance); then how often the top "
            "guess is its most common class (about 10 % by chance, 30 % if one knows the task). "
            f"{source}\n\n{tables['guess']}"
        ),
        "Clustering with noise": (
            "25 clients, three tasks, HoG, average linkage, the number of clusters given, 20 "
            "eigenvectors for `paper` and five for `missed-energy`, δ = 10⁻⁵: ARI, mean over both "
            "partitions and five seeds, the lowest of these ten in brackets. Clients have 60 to "
            "300 images of mnist-5k, some 2,400 of MNIST and Fashion-MNIST, 2,000 of CIFAR-10."
            f"\n\n{tables['ari']}"
        ),
        "What eigenvectors show of images": (
            "Means over 25 devices. Cosine: of a device's mean image with the one decoded from "
            "its first eigenvector, and of what is beyond the public mean. Class shares: half the "
            "sum of differences between true and guessed shares. "
            f"{_source('rebuilt', 'rebuilt')}\n\n{images}"
        ),
    }


def _robustness() -> dict[str, str]:
    numbers = measured("outliers")
    tables, source = outliers.tables(numbers), _source("outliers", "outliers")
    return {
        "Honest federations": (
            "How many federations without a liar have outliers, and, in brackets, how many clients "
            "are outliers: 10 to 100 clients, one to eight tasks, each partition; in some, a tenth "
            "or two fifths of the clients have a tenth of their images. The data are MNIST "
            "(all, and 5,000 images), Fashion-MNIST and CIFAR-10; data with an outlier have a "
            f"row. {source}\n\n"
            f"{tables['honest federations']}"
        ),
        "Lies in the pre-round": (
            "25 clients of MNIST, three tasks, five seeds, one to five liars. A cell is the honest "
            "clients' ARI, the lowest of the five numbers of liars, and, in brackets, the lowest "
            "that agglomeration alone gives; the number of clusters is given, or chosen by the "
            f"elbow.\n\n{tables['lies']}"
        ),
    }


def _verdicts() -> dict[str, str]:
    tables = verdicts.tables(measured("verdicts"))
    return {
        "How they were measured": (
            "8, 20 and 60 sites share 2,500 images of MNIST or Fashion-MNIST, drawn from each "
            "site's mix of classes; a fifth or two fifths validate. Logistic regression on HoG "
            "features is trained alone, together and in true groups, with and without Ditto, and "
            "tested on all test images of the mix. The true gains of drawn federations are known; "
            "of 8 to 60 sites, four strategies are compared. "
            f"{_source('verdicts', 'verdicts')}\n\n"
            "A mean gain is that of the chosen strategies, in points over staying alone, and "
            "beside it what validation samples showed of it. An interval is wrong if it misses "
            "the true gain by more than the noise of the test. The advice, a model for each "
            "site, is compared with the strategy that pooled validation picks for all. In "
            "brackets, intervals of 95 % over federations. With five folds, all samples validate, "
            "and the first fold's models are tested.\n\n"
            "Where 30 % of a site's labels are wrong, validation samples show two fifths of the "
            "gain on right labels; the intervals are those of the gain on labels as they are."
        ),
        "Seeds on which was chosen how to draw validation samples": tables["chosen on"],
        "Other seeds": tables["confirmed on"],
        "Natural sites": (
            "What groups of `fedkin` gain over staying alone, in points: the mean of sites like "
            "these by validation samples, and that of the test. ARI is against Portal's "
            "treatments, which were drawn for its plots. Validation chooses the best number of "
            "groups of watch and of flights, `auto` of neither. "
            f"{_source('natural', 'natural')}\n\n{natural.tables(measured('natural'))['natural']}"
        ),
    }


def _scale() -> dict[str, str]:
    tables = scale.tables()
    return {
        "Each device, with `relevance-at=clients`": (
            "Bytes of the records that are sent, with HoG (d = 324), by `python -m "
            "benchmarks.scale`; times are bytes divided by the speed of the link.\n\n"
            f"{tables['device']}"
        ),
        "The server, with `relevance-at=clients`": (
            f"It sends the same content K times, and stores it once.\n\n{tables['server']}"
        ),
        "Many devices that call at once": (
            "A SuperLink, the gate and a ServerApp; devices are threads with the connection of "
            "Flower's SuperNode. In each round a model of 240 kB goes to all and comes back at "
            "once. Seconds and requests are medians over the rounds, the others sums or maxima; "
            "all of it shared two cores. The longest call is a question that the gate holds. "
            f"{_source('many-devices', 'many_devices')}\n\n"
            f"{many_devices.tables(measured('many-devices'))['many']}"
        ),
    }


def main() -> None:
    """Write all pages."""
    for path, text in written().items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
