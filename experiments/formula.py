"""The bytes of FLT's Table VI, with the sizes of a run's models."""

from pathlib import Path

from safetensors.torch import load_file

from clients.signatures.autoencoder import LATENT, build_autoencoder
from fl_app.config.run_config import Config
from fl_app.results.layout import MODELS
from fl_core.data.datasets import load_dataset

_NUMBER = 4  # bytes of a float32


def expected_bytes(strategy: str, config: Config, num_clients: int, folder: Path) -> float | None:
    """Return the bytes of a client, both ways, by FLT's Table VI; None if it does not have it.

    `flt`: W_enc + k·e once and 2ρ·W·T; `ifca`: ρ·W·T·(C + 1); `fedsem`: 2ρ·W·T. W is the size of
    the model in the run's folder (None: it left none), W_enc of the encoder, and a message of k
    centroids has k·e numbers.
    """
    if strategy not in ("flt", "ifca", "fedsem"):
        return None
    model = next((folder / MODELS / strategy).rglob("*.safetensors"), None)
    if model is None:
        return None
    size = sum(array.numel() for array in load_file(model).values()) * _NUMBER
    # Flower rounds the number of participants.
    share = max(1, round(config.fraction_train * num_clients)) / num_clients
    one_way: float = share * size * config.num_server_rounds
    if strategy == "ifca":
        clusters = config.num_clusters
        return one_way * (clusters + 1) if isinstance(clusters, int) else None
    if strategy == "fedsem":
        return 2 * one_way
    channels = load_dataset(config.dataset, config.data_dir).sample_shape[0]
    encoder = build_autoencoder(channels, 0).encoder
    encoder_size: int = sum(array.numel() for array in encoder.state_dict().values())
    centroids = int(config.as_run_config()["num-centroids"])
    return 2 * one_way + (encoder_size + centroids * LATENT) * _NUMBER
