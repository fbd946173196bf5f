"""How fast the batched HoG is against scikit-image's, one image at a time, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from skimage.feature import hog as skimage_hog
from torch import Tensor

from clients.features.hog import hog
from fl_core.data.datasets import load_dataset


def microseconds_per_image(compute: Callable[[], object], images: int) -> float:
    """Return the best of three, after one to warm up."""
    compute()
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        compute()
        seconds.append(time.perf_counter() - started)
    return min(seconds) / images * 1e6


def main() -> None:
    """Time both on the same MNIST images and compare their numbers."""
    torch.set_num_threads(1)
    images: Tensor = load_dataset("mnist-5k").train_images[:2000]
    pixels = images[:, 0].numpy()

    def one_by_one() -> Tensor:
        features = [
            skimage_hog(image, orientations=9, pixels_per_cell=(7, 7), cells_per_block=(2, 2))
            for image in pixels
        ]
        return torch.from_numpy(np.stack(features)).float()

    difference = float((hog(images) - one_by_one()).abs().max())
    ours = microseconds_per_image(lambda: hog(images), len(images))
    theirs = microseconds_per_image(one_by_one, len(images))
    print(
        f"HoG of 28×28 images, one thread: {ours:.1f} µs an image, scikit-image {theirs:.0f} µs, "
        f"{theirs / ours:.0f} times faster; largest difference {difference:.0e}"
    )


if __name__ == "__main__":
    main()
