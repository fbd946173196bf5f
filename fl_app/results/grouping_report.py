"""Who should train with whom, how sure that is, and what it costs: grouping.json."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from fl_app.config.run_config import Config
from fl_app.results.schema import Candidate, Chosen, Doubt, Grouping
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.messages import protocol
from fl_core.models.build import build_model
from fl_core.relevance import MISSED_ENERGY
from strategies import ClusteredStrategy
from strategies.clusterings.agglomeration import COUNT_RULES, gaps
from strategies.clusterings.certainty import certainty, pair_shares, why_no_structure
from strategies.clusterings.number import Evidence, evidence, silhouettes
from strategies.rounds.round_state import Clusters

Float64 = NDArray[np.float64]

MOST_CLIENTS_WITH_PAIRS = 300  # clients of whom grouping.json has all pairs

_MOST_CANDIDATES = 50


@dataclass(frozen=True, eq=False)
class Grouped:
    """Clusters of a strategy on a seed, and what is known of their clients."""

    strategy: str
    seed: int
    clusters: Clusters
    names: Sequence[str]  # of all clients, those that were left out included
    tasks: list[int] | None = None  # the true ones, where they are known
    task_names: list[str] | None = None


def cost_of(
    strategy: ClusteredStrategy, config: Config, images: Dataset | Agreement
) -> dict[str, int]:
    """Return the bytes of a client in the pre-round (mean over clients), and in a round."""
    traffic, clients = strategy.training.pre_round_traffic, len(strategy.clusters.of_client)
    model = build_model(config.model, images.sample_shape, images.num_classes, seed=0)
    arrays = RecordDict({protocol.ARRAYS: ArrayRecord(model.state_dict())})
    up, down = round(traffic.up / clients), round(traffic.down / clients)
    return {
        "pre_round_per_client": up + down,
        "pre_round_up_per_client": up,
        "pre_round_down_per_client": down,
        "round_per_client": 2 * protocol.payload_bytes(arrays),
    }


def why_indistinguishable(clusters: Clusters, rule: int | str) -> str:
    """Return why a clustering could not distinguish clients; empty: it could."""
    if (clusters.uninformative or {}).keys() >= clusters.of_client.keys():
        return "no client has enough to compare"
    compared = clusters.comparison
    if compared is None or compared.measure != "relevance":
        return ""
    labels = np.array(list(clusters.of_client.values()))
    found_one = rule == "auto" and len(set(labels)) == 1
    if found_one and len(labels) == 3 and compared.formula == MISSED_ENERGY:
        return "of three clients, this relevance has two scores each, too few to distinguish groups"
    # One group is an answer where clients can be compared: as if they were in two.
    return why_no_structure(
        np.arange(len(labels)) % 2 if found_one else labels, compared.similarity
    )


def grouping_report(
    clusters: Clusters,
    names: Sequence[str],
    cost: Mapping[str, int],
    rule: int | str,
    command: str,
    unknown: Mapping[str, str] | None = None,
    sample: str = "image",
    columns: Sequence[str] = (),
) -> Grouping:
    """Return the content of grouping.json.

    `names` are those of all K clients; `rule` is the number of clusters, or what chooses it;
    `unknown` has the reason why a node is no client, by name.
    """
    count, uninformative = len(names), clusters.uninformative or {}
    if why := why_indistinguishable(clusters, rule):  # resamples agree then, and mean nothing
        clusters = replace(clusters, resamples=None)
    sure, doubts = [math.nan] * count, list[Doubt]()
    together: Float64 | None = None
    drawn, clients = clusters.resamples, list(clusters.of_client)
    if drawn is not None:
        labels_now = np.array(list(clusters.of_client.values()))
        found = certainty(labels_now, list(drawn.labels))
        for client, share in zip(clients, found.of_client, strict=True):
            if client not in uninformative:
                sure[client] = _rounded(share)
        doubts = [
            Doubt(
                client=names[clients[one.client]],
                cluster=one.cluster,
                other_cluster=one.other_cluster,
                share=_rounded(one.share),
            )
            for one in found.doubts(labels_now)
            if clients[one.client] not in uninformative
        ]
        if count <= MOST_CLIENTS_WITH_PAIRS:
            together = _among_all(pair_shares(list(drawn.labels)), clients, count)
    relevance: Float64 | None = None
    if clusters.comparison is not None and count <= MOST_CLIENTS_WITH_PAIRS:
        relevance = _among_all(clusters.comparison.similarity, clusters.compared, count)
    return Grouping(
        version=1,
        names=list(names),
        clusters=[clusters.of_client.get(client, -1) for client in range(count)],
        together=together,
        certainty=sure,
        in_doubt=doubts,
        why_indistinguishable=why,
        uninformative={names[client]: reason for client, reason in uninformative.items()},
        num_clusters=_number(clusters, rule, why),
        bytes=dict(cost),
        outliers={names[client]: reason for client, reason in clusters.outliers.items()},
        unknown_nodes=dict(unknown or {}),
        sample=sample,
        resamples=0 if drawn is None else len(drawn.labels),
        resampled="nothing" if drawn is None else drawn.drawn,
        command=command,
        relevance=relevance,
        columns=list(columns),
    )


def _among_all(table: Float64, clients: Sequence[int], count: int) -> Float64:
    """Return a matrix of some clients as one of all, NaN for the others."""
    full = np.full((count, count), np.nan)
    full[np.ix_(clients, clients)] = table
    return full.round(4)


def _rounded(value: float) -> float:
    return round(float(value), 4)


def _number(clusters: Clusters, rule: int | str, why_not: str) -> Chosen:
    """Return the number of clusters, why it was chosen, and the other candidates."""
    chosen = len(set(clusters.of_client.values()))
    scores: Float64 = np.empty(0)
    weighed: Evidence | None = None
    compared, resamples = clusters.comparison, clusters.resamples
    if compared is not None and not why_not:
        if compared.formula and rule not in COUNT_RULES:
            weighed = evidence(compared.similarity, compared.merges, compared.formula)
            scores = np.append(np.nan, weighed.scores)
        elif rule != "silhouette":
            scores = np.append(np.nan, gaps(compared.merges))
        elif compared.measure == "relevance":  # of others, 1 − R is not the distance
            distances = np.clip(1 - compared.similarity, 0, None)
            np.fill_diagonal(distances, 0)
            scores = np.append(np.nan, silhouettes(distances, compared.merges))
    numbers = () if resamples is None else resamples.numbers
    found = [
        Candidate(
            num_clusters=number,
            score=_rounded(score),
            resamples=_rounded(numbers.count(number) / max(1, len(numbers))),
        )
        for number, score in enumerate(scores.tolist(), start=1)
        if number > 1 or weighed  # rules but "auto" never choose one
    ]
    why = _why(chosen, rule, found, weighed, len(clusters.outliers), why_not)
    number = Chosen(chosen=chosen, why=why, candidates=found)
    return replace(number, candidates=number.foremost(_MOST_CANDIDATES))


def _why(
    chosen: int,
    rule: int | str,
    found: Sequence[Candidate],
    weighed: Evidence | None,
    num_outliers: int,
    why_not: str,
) -> str:
    score = "highest silhouette" if weighed or rule == "silhouette" else "widest gap between merges"
    best = sorted((one for one in found if one.num_clusters > 1), key=lambda one: -one.score)[:2]
    number = weighed.number if weighed else best[0].num_clusters if best else chosen
    reasons = [f"num-clusters asks for {rule}"] if isinstance(rule, int) else []
    if weighed:
        side = "above" if number > 1 else "not above"
        reasons.append(
            f"the {weighed.measure} ({weighed.distance:.3f}) is {side} what one group has at most "
            f"({weighed.most:g})"
        )
    if best and number > 1:
        evidence_for = f"the {score} ({best[0].score:.3f}) speaks for {best[0].num_clusters}"
        if len(best) > 1:
            evidence_for += f", the next ({best[1].score:.3f}) for {best[1].num_clusters}"
        reasons.append(evidence_for)
    if not reasons and why_not:
        reasons.append(f"the clients could not be distinguished: {why_not}")
    elif not reasons:
        reasons.append("one client is one cluster" if chosen == 1 else "the strategy chooses it")
    if num_outliers and best and chosen != number:
        reasons.append(f"in addition, {num_outliers} outlier(s) have a cluster each")
    return "; ".join(reasons)
