"""Sites with images of their own: real digits, written as PNG files into class folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset

# Berlin and Lyon want to tell 0, 2 and 4 apart, Oslo and Rome 6, 8 and 1.
SITES: Mapping[str, Sequence[int]] = {
    "berlin": (0, 2, 4),
    "lyon": (0, 2, 4),
    "oslo": (6, 8, 1),
    "rome": (6, 8, 1),
}
TOGETHER = [["berlin", "lyon"], ["oslo", "rome"]]


@cache
def digits() -> Dataset:
    return load_dataset("mnist-5k", "", seed=0)


@cache
def png_of(index: int, side: int) -> bytes:
    """Return a digit as a PNG file: most tests write the same ones again."""
    image = Image.fromarray(digits().train_samples[index, 0].numpy())
    stream = BytesIO()
    image.resize((side, side)).save(stream, "png", compress_level=0)
    return stream.getvalue()


def write_sites(
    root: Path,
    sites: Mapping[str, Sequence[int]] = SITES,
    *,
    images: int = 20,
    sides: Mapping[str, int] | None = None,
) -> dict[str, Path]:
    """Write `images` different digits of each class to each site's folder, and return the folders.

    Parameters
    ----------
    root : Path
    sites : mapping
        From a site's name to its digits: the class of 3 is "digit 3".
    images : int
        Of each class at each site; no two sites have the same.
    sides : mapping of int, optional
        The size in pixels to which a site's images are scaled; otherwise 28.
    """
    labels = digits().train_labels.numpy()
    taken = dict.fromkeys(range(10), 0)
    folders = {}
    for name, wanted in sites.items():
        side = (sides or {}).get(name, 28)
        folders[name] = root / name
        for digit in wanted:
            folder = folders[name] / f"digit {digit}"
            folder.mkdir(parents=True)
            members = np.flatnonzero(labels == digit)
            for index in members[taken[digit] : taken[digit] + images]:
                (folder / f"{index}.png").write_bytes(png_of(index, side))
            taken[digit] += images
    return folders
