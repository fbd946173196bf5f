"""The catalogue: the clustering, aggregation and local objective that a name stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from inspect import get_annotations
from typing import Any

from fl_core.objectives.fedamp import FedAmp
from fl_core.objectives.fedem import FedEm
from fl_core.objectives.fedrc import FedRc
from fl_core.objectives.fine_tune import AfterTraining
from fl_core.objectives.known import OBJECTIVES
from fl_core.objectives.lcfed import LcFed
from fl_core.objectives.objective import LocalObjective
from fl_core.objectives.plain import Plain
from fl_core.options import Option, options_of
from fl_core.relevance import MISSED_ENERGY
from fl_core.user_code import is_import_path, load_user_code
from strategies.aggregations.aggregation import Aggregation, ClusterMean, GraphMean
from strategies.aggregations.fedamp import AttentiveMean
from strategies.aggregations.lps_gps import LpsGps
from strategies.aggregations.robust import Krum, Median, MultiKrum, TrimmedMean
from strategies.clusterings.cfl import RecursiveBipartition, StableBipartition
from strategies.clusterings.clustering import (
    Clustering,
    ClusterPerClient,
    GivenClusters,
    RandomClusters,
    SingleCluster,
)
from strategies.clusterings.fedhc import UpdateClustering
from strategies.clusterings.fedsem import AllModelsClustering, ModelClustering
from strategies.clusterings.first_update import FirstDirectionClustering, FirstUpdateClustering
from strategies.clusterings.fl_hc import WarmUpClustering
from strategies.clusterings.flt import SignatureClustering
from strategies.clusterings.ifca import FreeLossClustering, LossClustering
from strategies.clusterings.lcfed import LowRankClustering
from strategies.clusterings.ocfl import TemperatureClustering
from strategies.clusterings.outliers import SEPARATE
from strategies.clusterings.pca_km_hc import LinearSignatureClustering
from strategies.clusterings.principal_angle import PrincipalAngleClustering
from strategies.clusterings.soft import SoftClustering
from strategies.clusterings.spectral import AT_SERVER, SpectralClustering
from strategies.strategy import ClusteredStrategy
from strategies.validation import is_ours


@dataclass(frozen=True)
class System:
    """What a strategy's name stands for."""

    clustering: type[Clustering]
    aggregation: type[Aggregation]
    weighted: bool  # whether the paper weights clients by their number of samples
    paper: str = ""  # authors and year, as in the file of a part; empty: a baseline, or ours
    objective: type[LocalObjective] = Plain
    options: Mapping[str, Any] = field(default_factory=dict)  # usual values of the clustering's

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return clustering, aggregation and local objective."""
        return self.clustering, self.aggregation, self.objective

    def build(
        self, *arguments: Any, weighted_mean: bool | None = None, **named: Any
    ) -> tuple[Clustering, Aggregation, LocalObjective]:
        """Build the three parts; a TypeError says that an argument is unknown, or is missing.

        Arguments are the clustering's, but named ones that another part takes are that part's.
        """
        cluster: Callable[..., Clustering] = self.clustering
        combine: Callable[..., Aggregation] = self.aggregation
        optimise: Callable[..., LocalObjective] = self.objective
        combining, optimising = (
            {name: named.pop(name) for name in parameters(part) if name in named}
            for part in (self.aggregation, self.objective)
        )
        if "weighted" in parameters(self.aggregation):
            combining["weighted"] = self.weighted if weighted_mean is None else weighted_mean
        positional = [*parameters(self.clustering)][: len(arguments)]
        of_line = {name: self.options[name] for name in self.options.keys() - positional}
        named = {**of_line, **named}
        return cluster(*arguments, **named), combine(**combining), optimise(**optimising)


Part = type[Clustering] | type[Aggregation] | type[LocalObjective]


def parameters(part: Part) -> dict[str, Field[Any]]:
    """Return the fields that a part's constructor sets, by name."""
    return {f.name: f for f in fields(part) if f.init} if is_dataclass(part) else {}


FEDKIN = {
    "num_clusters": "auto",
    "relevance": MISSED_ENERGY,
    "relevance_at": AT_SERVER,
    "outliers": SEPARATE,
}
SYSTEMS: dict[str, System] = {
    "rcc-pfl": System(SpectralClustering, ClusterMean, False, "Ali and Arafa, 2025"),
    "fedkin": System(SpectralClustering, ClusterMean, False, options=FEDKIN),
    "mt-hfl": System(SpectralClustering, LpsGps, True, "Ali and Arafa, 2024"),
    "flt": System(SignatureClustering, ClusterMean, True, "Jamali-Rad et al., 2022"),
    "flt-graph": System(SignatureClustering, GraphMean, True, "Jamali-Rad et al., 2022"),
    "fedhc": System(UpdateClustering, ClusterMean, True, "FedHC, unsigned"),
    "ifca-pfl": System(LossClustering, ClusterMean, False, "Ali and Arafa, 2025"),
    "ifca": System(FreeLossClustering, ClusterMean, False, "Ghosh et al., 2020"),
    "fedsem": System(ModelClustering, ClusterMean, False, "Xie et al., 2020"),
    "fedsem-flt": System(AllModelsClustering, ClusterMean, False, "Jamali-Rad et al., 2022"),
    "cfl": System(RecursiveBipartition, ClusterMean, False, "Sattler et al., 2021"),
    "cfl-stable": System(StableBipartition, ClusterMean, False, "Sattler et al., 2021"),
    "pacfl": System(
        PrincipalAngleClustering,
        ClusterMean,
        True,
        "Vahidian et al., 2023",
        objective=AfterTraining,
    ),
    "fedclust": System(FirstUpdateClustering, ClusterMean, True, "Islam et al., 2024"),
    "fedgroup": System(FirstDirectionClustering, ClusterMean, True, "Duan et al., 2020"),
    "fl-hc": System(WarmUpClustering, ClusterMean, True, "Briggs et al., 2020"),
    "ocfl": System(TemperatureClustering, ClusterMean, False, "Zuziak et al., 2024"),
    "lcfed": System(LowRankClustering, ClusterMean, False, "Zhang et al., 2025", LcFed),
    "pca-km-hc": System(LinearSignatureClustering, ClusterMean, True, "Jamali-Rad et al., 2022"),
    "optimum": System(GivenClusters, ClusterMean, False),
    "random": System(RandomClusters, ClusterMean, False),
    "single": System(SingleCluster, ClusterMean, False),
    "local": System(ClusterPerClient, ClusterMean, False),
    **{  # one model for all, with a local objective
        name: System(SingleCluster, ClusterMean, weighted, paper, OBJECTIVES[objective])
        for name, objective, weighted, paper in (
            ("fedavg", "plain", True, "McMahan et al., 2017"),
            ("fedprox", "prox", True, "Li et al., 2020"),
            ("ditto", "ditto", False, "Li et al., 2021"),
            ("fedavg-ft", "fine-tune", True, "Wang et al., 2019"),
            ("apfl", "apfl", False, "Deng et al., 2020"),
            ("pfedme", "pfedme", False, "Dinh et al., 2020"),
            ("scaffold", "scaffold", False, "Karimireddy et al., 2020"),
            ("fedper", "private-layers", True, "Arivazhagan et al., 2019"),
            ("fedrep", "private-head", False, "Collins et al., 2021"),
            ("fedbn", "private-norms", False, "Li et al., 2021"),
        )
    },
    "fedem": System(SoftClustering, ClusterMean, True, "Marfoq et al., 2021", FedEm),
    "fedrc": System(SoftClustering, ClusterMean, True, "Guo et al., 2024", FedRc),
    "fedamp": System(SingleCluster, AttentiveMean, False, "Huang et al., 2021", FedAmp),
}
ALONE, ALL = "local", "single"
"""The strategies that stand for staying alone, and for one model for all."""

# One model for all, or none: what groups clients is measured against these.
UNGROUPED = tuple(n for n, s in SYSTEMS.items() if s.clustering.shares == "nothing")
# A line with options is one more clustering: `fedkin+mean+ditto`.
CLUSTERINGS = {
    (name if system.options else system.clustering.name): system.clustering
    for name, system in SYSTEMS.items()
}
ROBUST = (Median, TrimmedMean, Krum, MultiKrum)
AGGREGATIONS: dict[str, type[Aggregation]] = {
    part.name: part for part in (ClusterMean, GraphMean, LpsGps, AttentiveMean, *ROBUST)
}


def system_of(strategy: str) -> System:
    """Return the system of a name in `SYSTEMS`, or of parts, `CLUSTERING+AGGREGATION+OBJECTIVE`.

    Without an objective, it is the plain one. Each may be the import path of a user-defined class;
    a clustering or an aggregation alone, and the other is `mean` or `spectral`. A KeyError says
    that there is no such name, a ValueError what is wrong with a user-defined class.
    """
    if strategy in SYSTEMS:
        return SYSTEMS[strategy]
    first, plus, others = strategy.partition("+")
    second, third, objective = others.partition("+")
    if not plus and is_import_path(strategy):
        alone = _class_of("strategy", strategy, Clustering, Aggregation)
        first, second = (strategy, "mean") if issubclass(alone, Clustering) else ("spectral", first)
    clustering: type[Clustering] = _part_of("clustering", first, CLUSTERINGS, Clustering)
    aggregation: type[Aggregation] = _part_of("aggregation", second, AGGREGATIONS, Aggregation)
    local = objective_class(objective) if third else Plain
    options = SYSTEMS[first].options if first in SYSTEMS else {}
    return System(clustering, aggregation, aggregation.weighted, objective=local, options=options)


def is_user_defined(strategy: str) -> bool:
    """Return whether a strategy, or a part of it, is named by its import path."""
    return any(map(is_import_path, strategy.split("+")))


def user_options(strategies: Iterable[str]) -> dict[str, Option]:
    """Return the options of strategies' user-defined parts by run-config key, inherited ones, too.

    Errors are as of `system_of`.
    """
    systems = [system_of(name) for name in strategies if is_user_defined(name)]
    return {
        key: one
        for system in systems
        for part in system.parts
        if not is_ours(part)
        for key, one in options_of(part).items()
    }


def objective_class(name: str) -> type[LocalObjective]:
    """Return the local objective of a name or an import path; errors are as of `system_of`."""
    found: type[LocalObjective] = _part_of("local objective", name, OBJECTIVES, LocalObjective)
    return found


def _part_of(key: str, name: str, known: Mapping[str, Any], kind: type) -> Any:
    return _class_of(key, name, kind) if is_import_path(name) else known[name]


def _class_of(key: str, path: str, *kinds: type) -> type:
    found = load_user_code(key, path)
    if not isinstance(found, type) or not issubclass(found, kinds):
        expected = " or ".join(f"strategies.{kind.__name__}" for kind in kinds)
        raise ValueError(
            f'{key} is "{path}", which is not a subclass of {expected}: see docs/adding.md.'
        )
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ValueError(f'{key} is "{path}", which lacks the method {missing[0]}: define it.')
    declared = {n for n, kind in get_annotations(found).items() if "ClassVar" not in str(kind)}
    if (declared or "__init__" in vars(found)) and "__dataclass_params__" not in vars(found):
        raise ValueError(
            f'{key} is "{path}", which is not a dataclass, but the app sets its fields: write '
            "@dataclass above it, and no __init__."
        )
    return found


def make_strategy(
    name: str, *arguments: Any, weighted_mean: bool | None = None, **named: Any
) -> ClusteredStrategy:
    """Make a strategy of the catalogue: `make_strategy("rcc-pfl", num_clusters=3)`.

    Parameters
    ----------
    name : str
        As in `system_of`.
    *arguments, **named
        By position or name, what the clustering takes; by name, what the aggregation, the local
        objective and `ClusteredStrategy` take. `seed` is the clustering's, too.
    weighted_mean : bool or None
        Weight clients by their number of samples; None: as the paper does.
    """
    system = system_of(name)
    common = {one.name for one in fields(ClusteredStrategy) if one.init and one.kw_only}
    options = {key: named.pop(key) for key in common & named.keys()}
    if "seed" in parameters(system.clustering):
        named["seed"] = options.get("seed", 0)
    parts = system.build(*arguments, weighted_mean=weighted_mean, **named)
    return ClusteredStrategy(*parts, **options)
