"""Write a folder of images for each of twenty sites, and for one that comes later.

The stripes are upright at odd sites and level at even ones; site 20 has both.
"""

import sys
from pathlib import Path

import numpy as np
from make_images import stripes
from PIL import Image

IMAGES = 20  # of each class at each site


def write(folder: Path, directions: tuple[str, str], generator: np.random.Generator) -> None:
    """Write a site's class folders, `left` and `right`, in a direction each."""
    for half, direction in zip(("left", "right"), directions, strict=True):
        (folder / half).mkdir(parents=True, exist_ok=True)
        for number in range(IMAGES):
            image = Image.fromarray(stripes(direction, half, generator))
            image.save(folder / half / f"{number}.png")


def main(root: Path) -> None:
    """Make the folders `root/sites/site-01` and so on, and `root/site-21`."""
    generator = np.random.default_rng(0)
    for site in range(1, 20):
        direction = "upright" if site % 2 else "level"
        write(root / f"sites/site-{site:02}", (direction, direction), generator)
    write(root / "sites/site-20", ("level", "upright"), generator)
    write(root / "site-21", ("upright", "upright"), generator)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
