"""FLT's encoders, pre-trained without labels at the server: from a file, or trained and cached."""

import logging
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file

from clients.settings import (
    PRETRAINING_DATASETS,
    SOURCE,
    WITHOUT_FILES,
    automatic_source,
    share_images,
)
from clients.signatures.autoencoder import Autoencoder, build_autoencoder, fit, load_autoencoder
from fl_core.data.datasets import load_dataset
from fl_core.data.folders import cache_dir
from fl_core.files import replacing

logger = logging.getLogger(__name__)

PRETRAINING_EPOCHS = 30
# On one thread the colour network takes 1.6 ms an image, the grey one 0.1 ms: so four minutes of
# pre-training for a large set in either case.
IMAGES_PER_EPOCH = {1: None, 3: 5_000}
_FORMAT = 1  # raise it when a network or its pre-training changes: cached weights go stale
_PRETRAINING_SEED = 0


def save_autoencoder(autoencoder: Autoencoder, path: Path) -> None:
    """Write the autoencoder's tensors to a safetensors file, completely or not at all."""
    with replacing(path) as temporary:
        save_file({n: t.contiguous() for n, t in autoencoder.state_dict().items()}, temporary)


def read_autoencoder(path: Path, channels: int) -> Autoencoder:
    """Read an autoencoder that `save_autoencoder` wrote."""
    if not path.is_file():
        raise FileNotFoundError(
            f"the autoencoder's file {path} does not exist: give the path of a .safetensors file, "
            f"or the name of a data set to pre-train on ({', '.join(PRETRAINING_DATASETS)})."
        )
    try:
        return load_autoencoder(load_file(path), channels)
    except Exception as error:  # on garbage the reader raises several kinds
        raise ValueError(
            f"the autoencoder's file {path} cannot be used ({error}): write it with "
            "clients.signatures.pretraining.save_autoencoder."
        ) from error


def choose_source(source: str, channels: int, dataset: str, data_dir: str = "") -> tuple[str, str]:
    """Return what to pre-train on, a data set or a file, and a warning, empty without any.

    `auto` is FLT's Enc2, a data set that is not the clients' `dataset`; of grey images mnist-5k, if
    the other's files cannot be had.
    """
    chosen, why = source, ""
    if source == "auto":
        chosen = automatic_source(dataset, channels)
        try:
            load_dataset(chosen, data_dir)
        except OSError as error:
            if channels != 1:
                raise
            logger.warning("%s", error)
            why = f", since {chosen} could not be read"
            chosen = WITHOUT_FILES
    if share_images(dataset, chosen):
        why = f", which has images of the clients' data set{why}"
    return chosen, f"its encoder was pre-trained on {chosen}{why}" if why else ""


def pretrained_autoencoder(
    source: str,
    channels: int,
    *,
    data_dir: str = "",
    epochs: int = PRETRAINING_EPOCHS,
    device: torch.device | None = None,
) -> Autoencoder:
    """Return a pre-trained autoencoder, on the CPU: from a file, or trained now and cached.

    Training takes minutes; one process trains while others that need the same wait for it. `source`
    is a `.safetensors` file, or one of `PRETRAINING_DATASETS`, of which the training images are
    used without their labels. FLT takes 30 epochs; for colour an epoch is 5,000 images.
    """
    if SOURCE.read("encoder", source).endswith(".safetensors"):
        return read_autoencoder(Path(source).expanduser(), channels)
    fresh = build_autoencoder(channels, _PRETRAINING_SEED)
    images = load_dataset(source, data_dir).train_samples
    kind = f"{source}-{channels}-channels-{epochs}-epochs-seed-{_PRETRAINING_SEED}-v{_FORMAT}"
    kind += f"-{_checksum(images)}"
    if device is not None and device.type != "cpu":  # which rounds differently
        kind += f"-{device.type}"
    path = cache_dir() / f"autoencoder-{kind}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock"), mode=0o600):
        if path.is_file():
            with suppress(ValueError):
                return read_autoencoder(path, channels)
            logger.warning("The cached autoencoder %s is damaged and is made again.", path)
        logger.info("Pre-training the autoencoder on %d images of %s.", len(images), source)
        generator = torch.Generator().manual_seed(_PRETRAINING_SEED)
        fresh.to(device)
        fit(fresh, images, epochs, generator, IMAGES_PER_EPOCH[channels])
        save_autoencoder(fresh.cpu(), path)
    return fresh


def _checksum(images: torch.Tensor) -> str:
    content = blake2b(str(tuple(images.shape)).encode(), digest_size=8)
    content.update(images.contiguous().numpy().data)
    return content.hexdigest()
