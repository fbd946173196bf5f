"""Images in class folders or in a tar archive of them, decoded once and kept on disk."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL
import torch
from filelock import FileLock
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fl_core.files import replacing
from fl_core.image_files import ImageFile, fingerprint, listed_images

# No other format of Pillow's is tried, whatever a file's name: some start other programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
GRAY_MODES = {"1", "L", "LA", "La"}
COLOUR_MODES = {"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"}
MIN_SIDE, MAX_SIDE = 28, 224  # of images whose size is chosen here

_VERSION = 1  # raise it when the same files give other tensors, so that no old ones are read
_MAX_THREADS = 16

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images of a folder with their labels.

    Attributes
    ----------
    train_images : Tensor, uint8, shape (n, C, H, W)
    train_labels : Tensor, int64, shape (n,)
        Indices into `classes`.
    test_images, test_labels : Tensor or None
        None where there is no test folder.
    classes : tuple of str
        The class folders' names, sorted.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor | None
    test_labels: Tensor | None
    classes: tuple[str, ...]


@dataclass(frozen=True)
class _Header:
    height: int
    width: int
    gray: bool


def read_image_folder(path: Path, cache: Path) -> LabelledImages:
    """Read the images of `train/CLASS/*` and `test/CLASS/*`, gray or in colour, of any size.

    Where all training images have one size, of 224 pixels a side at most, it is kept. Otherwise
    the size is their median height and median width, shrunk together until both are at most 224,
    then rounded to a multiple of 4, 28 at least. Images of another size are stretched to it.
    Alpha is dropped. Hidden files and files without an image's ending are passed over.

    The tensors are kept in `cache`, in one file for each `path`, and mapped from there, so that
    processes share their memory. They are decoded again when the path, size or time of any file
    has changed. While one process decodes, others wait for it.

    Parameters
    ----------
    path : Path
        The folder that holds `train`, or a .tar or .tar.gz file with such a folder at any depth.
    cache : Path
        The folder for the decoded tensors.

    Raises
    ------
    ValueError
        If there is no training folder, a class has no images or none for training, gray images
        stand among colour images, or a file cannot be decoded.
    OSError
        If the folder cannot be read or the cache cannot be written.
    """
    stamp = f"{_VERSION} {PIL.__version__} {fingerprint(path)}"
    name = blake2b(os.fsencode(path.resolve()), digest_size=16).hexdigest()
    stored = cache / "datasets" / f"{name}.safetensors"
    found = _load(stored, stamp)
    if found is not None:
        return found
    stored.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(stored.with_suffix(".lock")):
        found = _load(stored, stamp)  # by now another process may have written it
        if found is None:
            _decode_into(stored, path, stamp)
            found = _load(stored, stamp)
    if found is None:
        raise OSError(f"{stored}, just written, cannot be read: set FL_CACHE_DIR to another disk.")
    return found


def _load(stored: Path, stamp: str) -> LabelledImages | None:
    """Return what `stored` holds; None if it is not there, of other images, or damaged."""
    try:
        with safe_open(stored, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("fingerprint") != stamp:
                return None
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError):
        return None
    return LabelledImages(
        tensors["train_images"],
        tensors["train_labels"],
        tensors.get("test_images"),
        tensors.get("test_labels"),
        tuple(json.loads(metadata["classes"])),
    )


def _decode_into(stored: Path, path: Path, stamp: str) -> None:
    """Decode every image below `path` and write the tensors to `stored`."""
    with listed_images(path) as splits:
        classes = list(splits["train"])
        files = {
            split: [file for name in classes for file in folders.get(name, ())]
            for split, folders in splits.items()
        }
        headers = {split: _for_each_image(some, path, _header) for split, some in files.items()}
        gray = _is_gray(files, headers, path)
        size = _common_size(headers["train"])
        tensors = {}
        for split, some in files.items():
            counts = torch.tensor([len(splits[split].get(name, ())) for name in classes])
            tensors[f"{split}_images"] = _decode(some, path, size, gray)
            tensors[f"{split}_labels"] = torch.arange(len(classes)).repeat_interleave(counts)
    metadata = {"fingerprint": stamp, "classes": json.dumps(classes)}
    with replacing(stored) as temporary:
        save_file(tensors, temporary, metadata=metadata)


def _header(image: Image.Image, _: int) -> _Header:
    """Return what is known before the pixels are decoded."""
    if image.mode not in GRAY_MODES | COLOUR_MODES:
        # Pillow would clip them to 8 bits, not scale them.
        raise ValueError(f"images of mode {image.mode} are not supported, only 8 bits a channel")
    return _Header(image.height, image.width, image.mode in GRAY_MODES)


def _is_gray(
    files: Mapping[str, Sequence[ImageFile]], headers: Mapping[str, Sequence[_Header]], root: Path
) -> bool:
    """Return whether all images are gray (True) or all have colours (False)."""
    kinds = {
        header.gray: file
        for split in files
        for file, header in zip(files[split], headers[split], strict=True)
    }
    if len(kinds) > 1:
        raise ValueError(
            f"{root} mixes gray images ({kinds[True].path}) and colour images "
            f"({kinds[False].path}): convert them to one kind."
        )
    return True in kinds


def _common_size(headers: Sequence[_Header]) -> tuple[int, int]:
    """Return the height and width for all images, as `read_image_folder` describes."""
    sizes = np.array([(header.height, header.width) for header in headers])
    if (sizes == sizes[0]).all() and sizes[0].max() <= MAX_SIDE:
        height, width = sizes[0]
    else:
        median = np.median(sizes, axis=0)
        scaled = median * min(1.0, MAX_SIDE / median.max())
        height, width = np.maximum(4 * np.round(scaled / 4), MIN_SIDE)
    return int(height), int(width)


def _decode(files: Sequence[ImageFile], root: Path, size: tuple[int, int], gray: bool) -> Tensor:
    """Return the images of `files`, uint8 (n, C, H, W)."""
    height, width = size
    images = np.empty((len(files), 1 if gray else 3, height, width), np.uint8)

    def fill(image: Image.Image, index: int) -> None:
        pixels = np.asarray(_converted(image, (width, height), gray))
        images[index] = pixels.reshape(height, width, -1).transpose(2, 0, 1)

    _for_each_image(files, root, fill)
    return torch.from_numpy(images)


def _converted(image: Image.Image, size: tuple[int, int], gray: bool) -> Image.Image:
    """Return the image in its final mode and size (width, height)."""
    mode = "L" if gray else "RGB"
    if image.size != size:
        # A large JPEG is decoded at twice the size or more, which is quicker than in full.
        image.draft(mode, (2 * size[0], 2 * size[1]))
    if "transparency" in image.info and not gray:
        image = image.convert("RGBA")  # the direct way gives the same pixels and a warning
    image = image.convert(mode)
    return image if image.size == size else image.resize(size)


def _for_each_image(
    files: Sequence[ImageFile], root: Path, function: Callable[[Image.Image, int], Result]
) -> list[Result]:
    """Call `function` with each opened image and its index, in threads.

    Raises
    ------
    ValueError
        If it fails for any file, naming the first three.
    """

    def attempt(index: int) -> Result | Exception:
        try:
            with files[index].open() as stream, Image.open(stream, formats=FORMATS) as image:
                return function(image, index)
        except Exception as error:  # a damaged image shows as nearly any exception
            return error

    threads = min(os.cpu_count() or 1, _MAX_THREADS)
    with warnings.catch_warnings(), ThreadPoolExecutor(threads) as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        results = list(pool.map(attempt, range(len(files))))
    failures = [i for i, result in enumerate(results) if isinstance(result, Exception)]
    if failures:
        named = ", ".join(files[i].path for i in failures[:3])
        more = f" and {len(failures) - 3} more" if len(failures) > 3 else ""
        raise ValueError(
            f"{len(failures)} of {len(files)} images in {root} cannot be decoded, {named}{more} "
            f"(the first: {results[failures[0]]}): remove or replace them."
        )
    return [result for result in results if not isinstance(result, Exception)]
