"""FLT's convolutional autoencoders: pre-trained without labels, their encoders give signatures.

FLT (section IV) groups clients by the encoder alone: the trained models know nothing of it.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from clients.features.hog import check_images
from clients.training.train import as_pixels
from fl_core.models.build import seeded
from fl_core.text import one_line

logger = logging.getLogger(__name__)

LATENT = 128  # e, the width of an embedding
SIDES = {1: 28, 3: 32}  # height and width that the encoder takes, by channels
# Measured on one thread, channels last: grey 100 µs an image, 90 at 64 with half the steps; 150
# at 16 and at 128.
BATCH = 32
_ENCODING_BATCH = 256


class Autoencoder(nn.Module):
    """An encoder from pixels in [0, 1], float32 (n, C, side, side), to (n, `LATENT`), and back."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, channels: int) -> None:
        super().__init__()
        self.encoder, self.decoder, self.channels = encoder, decoder, channels

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode and decode pixels; the result has their shape."""
        return cast(Tensor, self.decoder(self.encoder(pixels)))


class Residual(nn.Module):
    """A residual layer: ReLU, 3×3 convolution, ReLU, 1×1 convolution, added to its input."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(width, hidden, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.Conv2d(hidden, width, 1, bias=False),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Return the sum, of the input's shape (n, width, H, W)."""
        return maps + cast(Tensor, self.layers(maps))


def build_autoencoder(channels: int, seed: int) -> Autoencoder:
    """Build an autoencoder with random weights that depend on `seed` alone.

    For 1 channel, the convolutional one for grey images of 28×28; for 3, the residual one for
    colour images of 32×32; a ValueError refuses others.
    """
    if channels not in SIDES:
        raise ValueError(
            f"the images have {channels} channels, but there are autoencoders for 1 (grey) and "
            "3 (colour) only: convert the images."
        )
    with seeded(seed):
        encoder, decoder = _grey_layers() if channels == 1 else _colour_layers()
        autoencoder = Autoencoder(encoder, decoder, channels)
    return autoencoder.to(memory_format=torch.channels_last)  # a fifth faster for grey images


def _grey_layers() -> tuple[nn.Module, nn.Module]:
    """Return FLT's encoder for 28×28 and its mirror image; up-sampling undoes the max-pools."""
    encoder = OrderedDict(
        conv1=nn.Conv2d(1, 16, 3, padding=1),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(16, 4, 3, padding=1),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        latent=nn.Linear(4 * 7 * 7, LATENT),
    )
    decoder = OrderedDict(
        hidden=nn.Linear(LATENT, 4 * 7 * 7),
        unflatten=nn.Unflatten(1, (4, 7, 7)),
        up1=nn.ConvTranspose2d(4, 16, 2, stride=2),
        relu1=nn.ReLU(),
        up2=nn.ConvTranspose2d(16, 1, 2, stride=2),
        sigmoid=nn.Sigmoid(),
    )
    return nn.Sequential(encoder), nn.Sequential(decoder)


def _colour_layers(hidden: int = 128, residual: int = 32) -> tuple[nn.Module, nn.Module]:
    """Return a residual encoder for 32×32×3 and its mirror image, of FLT's widths.

    The eight channels in front of the linear layer are ours, so that it stays small.
    """
    narrow = 8
    encoder = OrderedDict(
        conv1=nn.Conv2d(3, hidden // 2, 4, stride=2, padding=1),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(hidden // 2, hidden, 4, stride=2, padding=1),
        relu2=nn.ReLU(),
        conv3=nn.Conv2d(hidden, hidden, 3, padding=1),
        residual1=Residual(hidden, residual),
        residual2=Residual(hidden, residual),
        relu3=nn.ReLU(),
        narrow=nn.Conv2d(hidden, narrow, 1),
        relu4=nn.ReLU(),
        flatten=nn.Flatten(),
        latent=nn.Linear(narrow * 8 * 8, LATENT),
    )
    decoder = OrderedDict(
        hidden=nn.Linear(LATENT, narrow * 8 * 8),
        unflatten=nn.Unflatten(1, (narrow, 8, 8)),
        widen=nn.Conv2d(narrow, hidden, 1),
        relu1=nn.ReLU(),
        residual1=Residual(hidden, residual),
        residual2=Residual(hidden, residual),
        relu2=nn.ReLU(),
        conv=nn.Conv2d(hidden, hidden, 3, padding=1),
        relu3=nn.ReLU(),
        up1=nn.ConvTranspose2d(hidden, hidden // 2, 4, stride=2, padding=1),
        relu4=nn.ReLU(),
        up2=nn.ConvTranspose2d(hidden // 2, 3, 4, stride=2, padding=1),
        sigmoid=nn.Sigmoid(),
    )
    return nn.Sequential(encoder), nn.Sequential(decoder)


def fit(
    autoencoder: Autoencoder,
    images: Tensor,
    epochs: int,
    generator: torch.Generator,
    images_per_epoch: int | None = None,
) -> list[float]:
    """Train the autoencoder in place to reproduce images, and return each epoch's error.

    Adam, mean squared error per pixel in [0, 1], as seen while training; no labels. Images are
    uint8 (n, C, H, W), of any height and width. `generator` draws their order in each epoch, which
    has `images_per_epoch` of them, or all.
    """
    _check(images, autoencoder.channels)
    device = _device_of(autoencoder)
    pixels = torch.cat(list(_resized(images.to(device), SIDES[autoencoder.channels])))
    optimizer = torch.optim.Adam(autoencoder.parameters(), 1e-3, fused=True)
    autoencoder.train()
    history = []
    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(pixels), generator=generator)[:images_per_epoch]
        total = torch.zeros((), dtype=torch.float64, device=device)
        for batch in torch.split(order.to(device), BATCH):
            optimizer.zero_grad()
            inputs = as_pixels(pixels[batch])
            loss = functional.mse_loss(autoencoder(inputs), inputs)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach() * len(batch)
        error = float(total / len(order))
        logger.info("Autoencoder: epoch %d of %d, mean squared error %.5f.", epoch, epochs, error)
        history.append(error)
    autoencoder.eval()
    return history


@torch.inference_mode()
def encode(autoencoder: Autoencoder, images: Tensor) -> NDArray[np.float32]:
    """Return the embeddings, float32 (n, 128), of images, uint8 (n, C, H, W), resized."""
    _check(images, autoencoder.channels)
    encoder, moved = autoencoder.encoder.eval(), images.to(_device_of(autoencoder))
    parts = [encoder(as_pixels(part)) for part in _resized(moved, SIDES[autoencoder.channels])]
    return cast(NDArray[np.float32], torch.cat(parts).cpu().numpy())


def _device_of(autoencoder: Autoencoder) -> torch.device:
    return next(autoencoder.parameters()).device


def _check(images: Tensor, channels: int) -> None:
    check_images(images)
    if images.shape[1] != channels:
        raise ValueError(
            f"the images have {images.shape[1]} channels, but the autoencoder takes {channels}: "
            "choose one that was pre-trained on images of the same kind."
        )
    if not len(images):
        raise ValueError("there are no images for the autoencoder: give it at least one.")


def _resized(images: Tensor, side: int) -> Iterator[Tensor]:
    """Yield the images, uint8, in parts of `_ENCODING_BATCH`, resized to side × side pixels."""
    for part in torch.split(images, _ENCODING_BATCH):
        if part.shape[2:] == (side, side):
            yield part
            continue
        smooth = functional.interpolate(part.float(), (side, side), mode="bilinear", antialias=True)
        yield smooth.round_().clamp_(0, 255).to(torch.uint8)


def load_autoencoder(weights: Mapping[str, Tensor], channels: int) -> Autoencoder:
    """Build an autoencoder from its tensors, or from its encoder's alone (`encoder.…`).

    A ValueError says that names or shapes are others, or a value is not finite.
    """
    autoencoder = build_autoencoder(channels, seed=0)
    decoder = {n: t for n, t in autoencoder.state_dict().items() if n.startswith("decoder.")}
    try:
        alone = decoder.keys().isdisjoint(weights)
        autoencoder.load_state_dict({**decoder, **weights} if alone else dict(weights))
    except RuntimeError as error:
        raise ValueError(
            f"these are not the weights of the autoencoder for {channels} channels: "
            f"{one_line(str(error))}"
        ) from error
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise ValueError(
            "the autoencoder's weights are not all finite: train it again with a lower learning "
            "rate."
        )
    return autoencoder.eval()
