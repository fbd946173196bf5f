"""What happens on the server: clusterings, aggregations, and strategies of them.

`make_strategy("rcc-pfl", num_clusters=3)` makes a strategy of the catalogue.
"""

from fl_core.objectives.objective import LocalObjective as LocalObjective
from fl_core.objectives.objective import LocalTraining as LocalTraining
from strategies.aggregations.aggregation import Aggregation as Aggregation
from strategies.aggregations.aggregation import ClusterMean as ClusterMean
from strategies.aggregations.aggregation import GraphMean as GraphMean
from strategies.aggregations.fedamp import AttentiveMean as AttentiveMean
from strategies.aggregations.lps_gps import LpsGps as LpsGps
from strategies.aggregations.robust import Krum as Krum
from strategies.aggregations.robust import Median as Median
from strategies.aggregations.robust import MultiKrum as MultiKrum
from strategies.aggregations.robust import TrimmedMean as TrimmedMean
from strategies.catalogue import make_strategy as make_strategy
from strategies.clusterings.cfl import RecursiveBipartition as RecursiveBipartition
from strategies.clusterings.cfl import StableBipartition as StableBipartition
from strategies.clusterings.clustering import Clustering as Clustering
from strategies.clusterings.clustering import ClusterPerClient as ClusterPerClient
from strategies.clusterings.clustering import GivenClusters as GivenClusters
from strategies.clusterings.clustering import RandomClusters as RandomClusters
from strategies.clusterings.clustering import SingleCluster as SingleCluster
from strategies.clusterings.fedhc import UpdateClustering as UpdateClustering
from strategies.clusterings.fedsem import AllModelsClustering as AllModelsClustering
from strategies.clusterings.fedsem import ModelClustering as ModelClustering
from strategies.clusterings.first_update import FirstDirectionClustering as FirstDirectionClustering
from strategies.clusterings.first_update import FirstUpdateClustering as FirstUpdateClustering
from strategies.clusterings.fl_hc import WarmUpClustering as WarmUpClustering
from strategies.clusterings.flt import SignatureClustering as SignatureClustering
from strategies.clusterings.ifca import LossClustering as LossClustering
from strategies.clusterings.lcfed import LowRankClustering as LowRankClustering
from strategies.clusterings.ocfl import TemperatureClustering as TemperatureClustering
from strategies.clusterings.pca_km_hc import LinearSignatureClustering as LinearSignatureClustering
from strategies.clusterings.principal_angle import (
    PrincipalAngleClustering as PrincipalAngleClustering,
)
from strategies.clusterings.soft import SoftClustering as SoftClustering
from strategies.clusterings.spectral import SpectralClustering as SpectralClustering
from strategies.rounds.client_registry import ClientRegistry as ClientRegistry
from strategies.rounds.client_registry import Refusal as Refusal
from strategies.rounds.conversation import Conversation as Conversation
from strategies.rounds.failures import Failure as Failure
from strategies.rounds.round_state import Clusters as Clusters
from strategies.rounds.round_state import Comparison as Comparison
from strategies.rounds.round_state import Round as Round
from strategies.rounds.round_state import Update as Update
from strategies.rounds.training import RoundReport as RoundReport
from strategies.rounds.training import Training as Training
from strategies.strategy import ClusteredStrategy as ClusteredStrategy
