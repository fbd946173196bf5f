"""Which name is which system: the only place that says so, for the app and for the classes below.

A system is a clustering, an aggregation, whether clients count by their number of samples, and what
clients optimise. A new one is a line in `SYSTEMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any

from fl_core.own_code import is_own, load_own
from strategies import objectives as o
from strategies.aggregations.aggregation import Aggregation, ClusterMean, GraphMean
from strategies.aggregations.lps_gps import LpsGps
from strategies.aggregations.robust import (
    ClippedMean,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
)
from strategies.base import ClusteredStrategy
from strategies.clusterings.cfl import RecursiveBipartition
from strategies.clusterings.clustering import (
    Clustering,
    GivenClusters,
    OwnCluster,
    RandomClusters,
    SingleCluster,
)
from strategies.clusterings.fedhc import UpdateClustering
from strategies.clusterings.fedsem import ModelClustering
from strategies.clusterings.first_update import FirstDirectionClustering, FirstUpdateClustering
from strategies.clusterings.flt import SignatureClustering
from strategies.clusterings.ifca import FreeLossClustering, LossClustering
from strategies.clusterings.pca_km_hc import LinearSignatureClustering
from strategies.clusterings.principal_angle import PrincipalAngleClustering
from strategies.clusterings.spectral import SpectralClustering
from strategies.objectives import LocalObjective, Plain


@dataclass(frozen=True)
class System:
    """What a name stands for.

    Attributes
    ----------
    clustering : subclass of Clustering
    aggregation : subclass of Aggregation
    weighted : bool
        Whether the paper weights clients by their number of samples.
    paper : str
        Who says so; title and address are at the head of a part's file. Empty: a baseline.
    objective : subclass of LocalObjective
        What a client optimises, and what it keeps.
    """

    clustering: type[Clustering]
    aggregation: type[Aggregation]
    weighted: bool
    paper: str = ""
    objective: type[LocalObjective] = Plain

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return its parts: clustering, aggregation, local objective."""
        return self.clustering, self.aggregation, self.objective

    def build(
        self, *arguments: Any, weighted_mean: bool | None = False, **named: Any
    ) -> tuple[Clustering, Aggregation, LocalObjective]:
        """Build the three parts.

        Arguments are the clustering's; named ones that another part takes are that part's.
        `weighted_mean` None is as the paper has it. A TypeError says that no part takes an
        argument, or that one is missing.
        """
        cluster: Callable[..., Clustering] = self.clustering
        combine: Callable[..., Aggregation] = self.aggregation
        optimise: Callable[..., LocalObjective] = self.objective
        given, own = (
            {name: named.pop(name) for name in parameters(part) if name in named}
            for part in (self.aggregation, self.objective)
        )
        if "weighted" in parameters(self.aggregation):
            given["weighted"] = self.weighted if weighted_mean is None else weighted_mean
        return cluster(*arguments, **named), combine(**given), optimise(**own)


Part = type[Clustering] | type[Aggregation] | type[LocalObjective]


def parameters(part: Part) -> dict[str, Field[Any]]:
    """Return the fields that a part's constructor sets, by name."""
    return {f.name: f for f in fields(part) if f.init} if is_dataclass(part) else {}


SYSTEMS: dict[str, System] = {
    "rcc-pfl": System(SpectralClustering, ClusterMean, False, "Ali and Arafa, 2025"),
    "mt-hfl": System(SpectralClustering, LpsGps, True, "Ali and Arafa, 2024"),
    "flt": System(SignatureClustering, ClusterMean, True, "Jamali-Rad et al., 2022"),
    "flt-graph": System(SignatureClustering, GraphMean, True, "Jamali-Rad et al., 2022"),
    "fedhc": System(UpdateClustering, ClusterMean, True, "FedHC, unsigned"),
    "ifca-pfl": System(LossClustering, ClusterMean, False, "Ali and Arafa, 2025"),
    "ifca": System(FreeLossClustering, ClusterMean, False, "Ghosh et al., 2020"),
    "fedsem": System(ModelClustering, ClusterMean, False, "Xie et al., 2020"),
    "cfl": System(RecursiveBipartition, ClusterMean, False, "Sattler et al., 2021"),
    "pacfl": System(PrincipalAngleClustering, ClusterMean, True, "Vahidian et al., 2023"),
    "fedclust": System(FirstUpdateClustering, ClusterMean, True, "Islam et al., 2024"),
    "flexcfl": System(FirstDirectionClustering, ClusterMean, True, "Duan et al., 2021"),
    "pca-km-hc": System(LinearSignatureClustering, ClusterMean, True, "Jamali-Rad et al., 2022"),
    "optimum": System(GivenClusters, ClusterMean, False),
    "random": System(RandomClusters, ClusterMean, False),
    "single": System(SingleCluster, ClusterMean, False),
    "local": System(OwnCluster, ClusterMean, False),
    "fedprox": System(SingleCluster, ClusterMean, False, "Li et al., 2020", o.Prox),
    "ditto": System(SingleCluster, ClusterMean, False, "Li et al., 2021", o.Ditto),
    "fedper": System(SingleCluster, ClusterMean, True, "Arivazhagan et al., 2019", o.PrivateLayers),
    "fedrep": System(SingleCluster, ClusterMean, False, "Collins et al., 2021", o.PrivateHead),
    "fedbn": System(SingleCluster, ClusterMean, False, "Li et al., 2021", o.PrivateNorms),
}
# One model for all, or none: what groups clients is measured against these.
UNGROUPED = tuple(n for n, s in SYSTEMS.items() if s.clustering.shares == "nothing")
CLUSTERINGS = {system.clustering.name: system.clustering for system in SYSTEMS.values()}
ROBUST = (Median, TrimmedMean, Krum, MultiKrum, ClippedMean, GeometricMedian)
AGGREGATIONS: dict[str, type[Aggregation]] = {
    part.name: part for part in (ClusterMean, GraphMean, LpsGps, *ROBUST)
}
OBJECTIVES: dict[str, type[LocalObjective]] = {
    part.name: part
    for part in (
        Plain,
        o.Prox,
        o.Ditto,
        o.PrivateLayers,
        o.PrivateHead,
        o.PrivateNorms,
    )
}


def system_of(strategy: str) -> System:
    """Return the system of a name in `SYSTEMS`, or of parts, `CLUSTERING+AGGREGATION+OBJECTIVE`.

    Without an objective, it is the plain one. A clustering and an aggregation may be the import
    path of a class of one's own; alone, the other is `mean` or `spectral`.

    Raises
    ------
    KeyError
        If there is none.
    ValueError
        If there is no such class of one's own.
    """
    if strategy in SYSTEMS:
        return SYSTEMS[strategy]
    first, plus, others = strategy.partition("+")
    second, third, objective = others.partition("+")
    if not plus and is_own(strategy):
        alone = _class_of("strategy", strategy, Clustering, Aggregation)
        first, second = (strategy, "mean") if issubclass(alone, Clustering) else ("spectral", first)
    clustering: type[Clustering] = _part_of("clustering", first, CLUSTERINGS, Clustering)
    aggregation: type[Aggregation] = _part_of("aggregation", second, AGGREGATIONS, Aggregation)
    local = OBJECTIVES[objective] if third else Plain
    return System(clustering, aggregation, aggregation.weighted, objective=local)


def _part_of(key: str, name: str, known: Mapping[str, Any], kind: type) -> Any:
    return _class_of(key, name, kind) if is_own(name) else known[name]


def _class_of(key: str, path: str, *kinds: type) -> type:
    found = load_own(key, path)
    if not isinstance(found, type) or not issubclass(found, kinds):
        wanted = " or ".join(f"strategies.{kind.__name__}" for kind in kinds)
        raise ValueError(
            f'{key} is "{path}", which is no subclass of {wanted}: docs/adding-a-strategy.md has '
            "an example."
        )
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ValueError(f'{key} is "{path}", which lacks the method {missing[0]}: define it.')
    return found


class _Named(ClusteredStrategy):
    """A system of the catalogue as a class.

    Parameters
    ----------
    *arguments, **named
        What the clustering takes; by name only, what the aggregation, the local objective and
        `ClusteredStrategy` take.
        `seed` is the clustering's, too.
    weighted_mean : bool or None
        Weight clients by their number of samples; None: as the paper does. By default all systems
        weight clients alike, so that a comparison shows nothing but what is compared.
    """

    system: str

    def __init__(self, *arguments: Any, weighted_mean: bool | None = False, **named: Any) -> None:
        system = SYSTEMS[self.system]
        keywords = [field.name for field in fields(ClusteredStrategy) if field.kw_only]
        options = {name: named.pop(name) for name in keywords if name in named}
        if "seed" in parameters(system.clustering):
            named["seed"] = options.get("seed", 0)
        parts = system.build(*arguments, weighted_mean=weighted_mean, **named)
        super().__init__(*parts, **options)


class RccPfl(_Named):
    """RCC-PFL: spectral clustering before round 1, the plain mean per cluster (Algorithm 1)."""

    system = "rcc-pfl"


class MtHfl(_Named):
    """MT-HFL: each spectral cluster has a local server, and the common layers a global one."""

    system = "mt-hfl"

    def __init__(self, *arguments: Any, common_layers: Sequence[str], **named: Any) -> None:
        super().__init__(*arguments, common_layers=tuple(common_layers), **named)


class Flt(_Named):
    """FLT: one-shot relatedness by signatures.

    Case II: FedAvg in disjoint clusters; Case I (`graph=True`): each client's model is the mean
    over its neighbours in the graph.
    """

    system = "flt"

    def __init__(self, *arguments: Any, graph: bool = False, **named: Any) -> None:
        if graph:
            self.system = "flt-graph"
        super().__init__(*arguments, **named)


class FedHC(_Named):
    """FedHC: Ward's clusters of update directions in every round."""

    system = "fedhc"


class Ifca(_Named):
    """IFCA: an empty cluster keeps its model."""

    system = "ifca"


class IfcaPfl(Ifca):
    """IFCA-PFL (RCC-PFL, Algorithm 2): IFCA in which no cluster may be empty."""

    system = "ifca-pfl"


class FedSem(_Named):
    """FedSEM: clusters of client models."""

    system = "fedsem"


class Cfl(_Named):
    """CFL: clusters are split in two."""

    system = "cfl"


class Pacfl(_Named):
    """PACFL: clusters of the spaces that clients' images span, by principal angles."""

    system = "pacfl"


class FedClust(_Named):
    """FedClust: clusters of the last layers that the first training makes."""

    system = "fedclust"


class FlexCfl(_Named):
    """FlexCFL: clusters of the directions in which the first training goes."""

    system = "flexcfl"


class PcaKmHc(_Named):
    """PCA + k-means at the clients, hierarchical clustering at the server, FedAvg per cluster."""

    system = "pca-km-hc"


class Optimum(_Named):
    """The true tasks are known: the best that clustering can reach.

    Takes `tasks`, a mapping from client index to task.
    """

    system = "optimum"

    def __init__(self, tasks: Mapping[int, int], **named: Any) -> None:
        super().__init__(tasks, **named)


class Random(_Named):
    """Random clusters of the true sizes."""

    system = "random"


class Single(_Named):
    """One global model: FedAvg."""

    system = "single"


class Local(_Named):
    """No federation: every client trains its own model.

    The models still travel, so that all strategies are run and evaluated alike.
    """

    system = "local"


class FedProx(_Named):
    """FedProx: a client is pulled towards the model that it was sent (`prox_weight`, μ)."""

    system = "fedprox"


class Ditto(_Named):
    """Ditto: a personal model at each client, pulled towards the shared one (`ditto_weight`, λ)."""

    system = "ditto"


class FedPer(_Named):
    """FedPer: layers that never leave a client (`private_layers`, by default the last one)."""

    system = "fedper"


class FedRep(_Named):
    """FedRep: as FedPer, but the head is trained first, and then the body beneath it."""

    system = "fedrep"


class FedBN(_Named):
    """FedBN: norm layers never leave a client.

    Takes `norm_layers`, their names: `strategies.objectives.norm_layers` finds them in a model.
    """

    system = "fedbn"
