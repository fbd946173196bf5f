"""The eigenvectors and clusters that a run stores to place new clients later (docs/privacy.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from clients.settings import FEATURES
from fl_app.config.run_config import Config
from fl_app.results.grouping_report import Grouped
from fl_app.results.layout import spectra_path
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.preparation import NO_PREPARATION, Preparation
from fl_core.files import replacing
from fl_core.json_records import STRICT, from_json, to_json
from fl_core.models.model_file import is_shape
from fl_core.relevance import FORMULAS
from fl_core.user_code import is_import_path
from strategies import ClusteredStrategy
from strategies.rounds.round_state import Clusters

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

MOST_CLIENTS = 2_000
"""The eigenvectors of more clients have hundreds of megabytes, and are not stored."""

_FORMAT = "fedkin spectra 1"


@dataclass(frozen=True)
class SpectraCard:
    """How the clients' eigenvectors were made."""

    __pydantic_config__ = STRICT
    strategy: str
    seed: int
    features: str
    relevance: str  # the formula by which clients were compared
    num_eigenvectors: int  # of each client, that are compared
    sample_shape: tuple[int, ...]
    is_private: bool  # whether features were projected and noise was added
    names: tuple[str, ...]
    is_float: bool = False  # whether samples are float32; otherwise pixels, uint8
    preparation: Preparation = NO_PREPARATION

    def __post_init__(self) -> None:
        """Refuse, by a ValueError, values that this app does not write."""
        right = {
            "strategy": self.strategy.isprintable(),
            "seed": self.seed >= 0,
            "features": self.features in FEATURES or is_import_path(self.features),
            "relevance": self.relevance in FORMULAS,
            "num_eigenvectors": self.num_eigenvectors > 0,
            "sample_shape": is_shape(self.sample_shape),
        }
        for name, is_right in right.items():
            if not is_right:
                raise ValueError(f"its {name} is not valid")
        self.preparation.check(self.sample_shape)


@dataclass(frozen=True, eq=False)
class StoredSpectra:
    """The content of the file."""

    card: SpectraCard
    clusters: Int64  # of each client, shape (K,)
    eigenvectors: list[Float32]  # K arrays of unit columns, shapes (d, k_j)


def store_spectra(
    folder: Path,
    strategy: ClusteredStrategy,
    config: Config,
    images: Dataset | Agreement,
    found: Grouped,
) -> None:
    """Write the eigenvectors of at most `MOST_CLIENTS` clients, readable for the owner only."""
    if not config.keep_spectra:
        return
    of_client = strategy.clusters.of_client
    shared = strategy.clustering.shared_eigenvectors()
    spectra = {client: shared[client] for client in shared if client in of_client}
    if not spectra or len(spectra) > MOST_CLIENTS:
        return
    config = config.for_strategies(found.strategy)
    card = SpectraCard(
        strategy=found.strategy,
        seed=found.seed,
        features=config.features,
        relevance=config.relevance,
        num_eigenvectors=config.eigenvectors(),
        sample_shape=images.sample_shape,
        is_private=bool(config.pre_round_epsilon),
        names=tuple(found.names[client] for client in spectra),
        is_float=images.is_float,
        preparation=preparation_of(images, config),
    )
    clusters = np.array([of_client[client] for client in spectra])
    path = spectra_path(folder, found.strategy, found.seed)
    save_spectra(path, StoredSpectra(card, clusters, [*spectra.values()]))


def preparation_of(
    images: Dataset | Agreement, config: Config, model: str = "", clusters: Clusters | None = None
) -> Preparation:
    """Return how a run prepared its samples, or those of the only client of a model."""
    if isinstance(images, Dataset):
        kind, _, number = model.partition("-")
        alone = [int(number)] if kind == "client" else []
        if kind == "cluster" and clusters is not None:
            alone = clusters.members(int(number))
        return images.preparation_of(alone[0] if len(alone) == 1 else None)
    return replace(images.preparation, label=config.label, standardise=config.standardise)


def save_spectra(path: Path, stored: StoredSpectra) -> None:
    """Write the file completely or not at all, readable for its owner only."""
    k = stored.card.num_eigenvectors
    arrays: dict[str, NDArray[Any]] = {"clusters": stored.clusters.astype(np.int64)}
    for client, vectors in enumerate(stored.eigenvectors):
        arrays[f"eigenvectors-{client}"] = np.ascontiguousarray(vectors[:, :k], np.float32)
    with replacing(path, private=True) as temporary:
        save_file(arrays, temporary, metadata={_FORMAT: to_json(stored.card)})


def load_spectra(path: Path) -> StoredSpectra:
    """Read what `save_spectra` wrote."""
    with path.open("rb"):
        pass  # unlike safe_open, this names the file that is a folder or may not be read
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if _FORMAT not in metadata:
                raise ValueError(f"its format is not {_FORMAT}")
            card = from_json(SpectraCard, metadata[_FORMAT])
            clusters = file.get_tensor("clusters")
            vectors = [file.get_tensor(f"eigenvectors-{c}") for c in range(len(card.names))]
        _check(clusters, vectors)
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"{path} has no eigenvectors of a run ({error}): give the results folder of "
            "a run that stored them."
        ) from error
    return StoredSpectra(card, clusters.astype(np.int64), vectors)


def _check(clusters: NDArray[Any], vectors: Sequence[NDArray[Any]]) -> None:
    if clusters.shape != (len(vectors),) or clusters.dtype.kind != "i" or not len(vectors):
        raise ValueError(f"it has clusters of shape {clusters.shape} for {len(vectors)} clients")
    for one in vectors:
        if one.ndim != 2 or one.dtype != np.float32 or len(one) != len(vectors[0]):
            raise ValueError(f"its eigenvectors have shape {one.shape}")
        if not one.shape[1] or not np.isfinite(one).all():
            raise ValueError("its eigenvectors are not all finite numbers")
