"""Which name is which system: the only place that says so, for the app and for the classes below.

A system is a clustering, an aggregation, and whether clients count by their number of samples. A
new one is a line in `SYSTEMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any

from strategies.aggregation import Aggregation, ClusterMean, GraphMean
from strategies.base import ClusteredStrategy
from strategies.cfl import RecursiveBipartition
from strategies.clustering import (
    Clustering,
    GivenClusters,
    OwnCluster,
    RandomClusters,
    SingleCluster,
)
from strategies.fedhc import UpdateClustering
from strategies.fedsem import ModelClustering
from strategies.flt import SignatureClustering
from strategies.ifca import FreeLossClustering, LossClustering
from strategies.mt_hfl import LpsGps
from strategies.pca_km_hc import LinearSignatureClustering
from strategies.robust import (
    ClippedMean,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
)
from strategies.spectral import SpectralClustering


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
        Who says so; title and address are at the head of the clustering's or the aggregation's
        file. Empty: a baseline.
    """

    clustering: type[Clustering]
    aggregation: type[Aggregation]
    weighted: bool
    paper: str = ""

    def halves(
        self, *arguments: Any, weighted_mean: bool | None = False, **named: Any
    ) -> tuple[Clustering, Aggregation]:
        """Build the clustering and the aggregation.

        Arguments are the clustering's; named ones that the aggregation takes are the aggregation's.
        `weighted_mean` None is as the paper has it. A TypeError says that neither takes an
        argument, or that one is missing.
        """
        cluster: Callable[..., Clustering] = self.clustering
        combine: Callable[..., Aggregation] = self.aggregation
        taken = parameters(self.aggregation)
        given = {name: named.pop(name) for name in taken if name in named}
        if "weighted" in taken:
            given["weighted"] = self.weighted if weighted_mean is None else weighted_mean
        return cluster(*arguments, **named), combine(**given)


Half = type[Clustering] | type[Aggregation]


def parameters(half: Half) -> dict[str, Field[Any]]:
    """Return the fields that the constructor of a clustering or an aggregation sets, by name."""
    return {f.name: f for f in fields(half) if f.init} if is_dataclass(half) else {}


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
    "pca-km-hc": System(LinearSignatureClustering, ClusterMean, True, "Jamali-Rad et al., 2022"),
    "optimum": System(GivenClusters, ClusterMean, False),
    "random": System(RandomClusters, ClusterMean, False),
    "single": System(SingleCluster, ClusterMean, False),
    "local": System(OwnCluster, ClusterMean, False),
}
BASELINES = tuple(name for name, system in SYSTEMS.items() if not system.paper)
CLUSTERINGS = {system.clustering.name: system.clustering for system in SYSTEMS.values()}
ROBUST = (Median, TrimmedMean, Krum, MultiKrum, ClippedMean, GeometricMedian)
AGGREGATIONS: dict[str, type[Aggregation]] = {
    half.name: half for half in (ClusterMean, GraphMean, LpsGps, *ROBUST)
}


def system_of(strategy: str) -> System:
    """Return the system of a name in `SYSTEMS`, or of a pair, `CLUSTERING+AGGREGATION`.

    Raises
    ------
    KeyError
        If there is none.
    """
    if strategy in SYSTEMS:
        return SYSTEMS[strategy]
    clustering, _, combining = strategy.partition("+")
    aggregation = AGGREGATIONS[combining]
    return System(CLUSTERINGS[clustering], aggregation, aggregation.weighted)


class _Named(ClusteredStrategy):
    """A system of the catalogue as a class.

    Parameters
    ----------
    *arguments, **named
        What the clustering takes; by name only, what the aggregation and `ClusteredStrategy` take.
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
        halves = system.halves(*arguments, weighted_mean=weighted_mean, **named)
        super().__init__(*halves, **options)


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
