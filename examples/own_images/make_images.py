"""Write grey images of stripes into class folders: level or upright, in the left or right half."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

IMAGES = 60  # of each class


def stripes(direction: str, half: str, generator: np.random.Generator) -> np.ndarray:
    """Return one noisy image, uint8, 28×28."""
    image = generator.integers(0, 100, (28, 28), dtype=np.uint8)
    part = image[:, :14] if half == "left" else image[:, 14:]
    lines = part[::4] if direction == "level" else part[:, ::4]
    lines += np.uint8(120)
    return image


def main(root: Path) -> None:
    """Make the folders `root/level-left` and so on, with their images."""
    generator = np.random.default_rng(0)
    for direction in ("level", "upright"):
        for half in ("left", "right"):
            folder = root / f"{direction}-{half}"
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(IMAGES):
                image = stripes(direction, half, generator)
                Image.fromarray(image).save(folder / f"{number}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
