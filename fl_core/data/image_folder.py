"""Images in class folders: decoded once, and then read from the cache."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import PIL
import torch
from filelock import FileLock
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fl_core.data.image_files import ClassFiles, ImageFiles, checksum, hold_out, listed_images
from fl_core.files import open_file, replacing
from fl_core.text import listed, one_line, printable

# No other format of Pillow's is tried, whatever a file's name: some start other programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
GREY_MODES = {"1", "L", "LA", "La"}
COLOUR_MODES = {"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"}
MIN_SIDE, MAX_SIDE = 28, 224  # of images whose size is chosen here

_VERSION = 5  # raise it when the same files give other tensors, so that no old ones are read

Result = TypeVar("Result")


class Split(NamedTuple):
    """Samples with their labels.

    Attributes
    ----------
    train_samples : Tensor, uint8, shape (n, C, H, W)
    train_labels : Tensor, int64, shape (n,)
        Indices into `classes`.
    test_samples, test_labels : Tensor
        Empty where there is no test folder and each class has one image.
    classes : tuple of str
        The class folders' names, sorted.
    is_in_time : bool
        Whether the order of those that train is time's, as of a table's rows.
    notes : tuple of str
        What is not read.
    """

    train_samples: Tensor
    train_labels: Tensor
    test_samples: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    is_in_time: bool = False
    notes: tuple[str, ...] = ()


def read_image_folder(path: Path, cache: Path, *, size: tuple[int, int] | None = None) -> Split:
    """Read images in class folders, laid out as in `listed_images`: grey or colour, of any size.

    Where there is no test folder, some are held out, by `hold_out`.

    Without `size`, where all training images have one size, of 224 pixels a side at most, it is
    kept. Otherwise it is their median height and median width, shrunk together until both are at
    most 224, then rounded to a multiple of 4, 28 at least. Images of another size are stretched to
    it. Images are turned upright as their EXIF data say, and alpha is dropped.

    They are decoded once, and again when the path, size or time of any file has changed.

    Parameters
    ----------
    path, cache : Path
        As in `listed_images`, and the folder for the decoded tensors.
    size : tuple of int, optional
        The height and width of all images.

    Raises
    ------
    ValueError
        As `listed_images`, or if there are both grey and colour images, or a file cannot be
        decoded.
    OSError
        If the folder cannot be read or the cache cannot be written.
    """
    files = listed_images(path)
    decode = partial(decode_images, files, path, size)
    stamp = checksum(files.all_images())
    images = decoded_once(cache, f"{path.resolve()}\0{size}", stamp, decode)
    return images._replace(notes=tuple(files.notes(path)))


def decoded_once(cache: Path, key: str, stamp: str, decode: Callable[[], Split]) -> Split:
    """Return the images that the cache has under a key, or else decode and store them.

    Where the `stamp` of what they were decoded from differs, they are decoded again. They are
    mapped from the file, so that processes share their memory. While one process decodes, others
    wait for it.
    """
    stamp = f"{_VERSION} {PIL.__version__} {stamp}"
    name = blake2b(os.fsencode(key), digest_size=16).hexdigest()
    stored = cache / "datasets" / f"{name}.safetensors"
    found = _load(stored, stamp)
    if found is not None:
        return found
    stored.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(stored.with_suffix(".lock")):
        found = _load(stored, stamp)  # by now another process may have written it
        if found is None:
            _save(stored, stamp, decode())
            found = _load(stored, stamp)
    if found is None:
        raise OSError(f"{stored}, just written, cannot be read: set FL_CACHE_DIR to another disk.")
    return found


def _load(stored: Path, stamp: str) -> Split | None:
    """Read the stored images; None if they are not there, of other images, or damaged."""
    try:
        with safe_open(stored, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("stamp") != stamp:
                return None
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError):
        return None
    return Split(**tensors, classes=tuple(json.loads(metadata["classes"])))


def _save(stored: Path, stamp: str, images: Split) -> None:
    tensors = {name: part for name, part in images._asdict().items() if isinstance(part, Tensor)}
    metadata = {"stamp": stamp, "classes": json.dumps(images.classes)}
    with replacing(stored, private=True) as temporary:  # the images may be confidential
        save_file(tensors, temporary, metadata=metadata)


def decode_images(files: ImageFiles, root: Path, size: tuple[int, int] | None = None) -> Split:
    """Decode the images that were listed in a folder, as `read_image_folder` describes."""
    channels, *chosen = common_shape(files, root)
    shape = (channels, *(size or chosen))
    classes = tuple(files.train)
    files = hold_out(files)

    def decoded(part: ClassFiles) -> tuple[Tensor, Tensor]:
        images = np.empty((sum(map(len, part.values())), *shape), np.uint8)
        paths = [path for own in part.values() for path in own]

        def fill(image: Image.Image, index: int) -> None:
            images[index] = _pixels(image, shape)

        for_each_image(paths, root, fill)
        counts = torch.tensor([len(part.get(name, ())) for name in classes])
        labels = torch.arange(len(counts)).repeat_interleave(counts)
        return torch.from_numpy(images), labels

    return Split(*decoded(files.train), *decoded(files.test), classes)


def common_shape(files: ImageFiles, root: Path) -> tuple[int, int, int]:
    """Return the shape (C, H, W) that `read_image_folder` gives images, by their headers.

    Raises
    ------
    ValueError
        If there are both grey and colour images, or the header of a file is damaged.
    """
    paths = files.all_images()
    headers = for_each_image(paths, root, lambda image, _: (_size(image), _is_grey(image)))
    kinds = {grey: path for path, (_, grey) in zip(paths, headers, strict=True)}
    if len(kinds) > 1:
        raise ValueError(
            f"{root} mixes grey images ({_below(kinds[True], root)}) and colour images "
            f"({_below(kinds[False], root)}): convert them to one kind."
        )
    num_train = sum(map(len, files.train.values()))
    size = common_size([size for size, _ in headers[:num_train]])
    return 1 if True in kinds else 3, *size


def common_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the height and width for images of `sizes`, as `read_image_folder` describes."""
    table = np.array(sizes)
    if (table == table[0]).all() and table[0].max() <= MAX_SIDE:
        height, width = table[0]
    else:
        median = np.median(table, axis=0)
        scaled = median * min(1.0, MAX_SIDE / median.max())
        height, width = np.maximum(4 * np.round(scaled / 4), MIN_SIDE)
    return int(height), int(width)


def _is_grey(image: Image.Image) -> bool:
    """Return whether an image is grey, by its header."""
    if image.mode not in GREY_MODES | COLOUR_MODES:
        # Pillow would clip them to 8 bits, not scale them.
        raise ValueError(f"images of mode {image.mode} are not supported, only 8 bits a channel")
    return image.mode in GREY_MODES


def _orientation(image: Image.Image) -> int:
    """Return how a camera was held, by an image's header: an EXIF orientation from 1 to 8."""
    if image.format == "TIFF":
        return 1  # Pillow turns them itself
    try:
        # PNG's own method would decode the pixels, to find EXIF data that stand behind them.
        return int(Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF data show as nearly any exception and say nothing of pixels
        return 1


def _size(image: Image.Image) -> tuple[int, int]:
    """Return the height and width that an image has upright, by its header."""
    width, height = image.size
    return (width, height) if _orientation(image) >= 5 else (height, width)


def _pixels(
    image: Image.Image, shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Decode an image for a model: uint8 of a shape (C, H, W), upright."""
    mode, size = "L" if shape[0] == 1 else "RGB", (shape[2], shape[1])
    is_upright = _orientation(image) == 1
    if image.size not in (size, size[::-1]):
        # A large JPEG is decoded at twice the size or more, which is quicker than in full.
        image.draft(mode, (2 * max(size), 2 * max(size)))
    if not is_upright:
        image = ImageOps.exif_transpose(image)
    if "transparency" in image.info and mode == "RGB":
        image = image.convert("RGBA")  # the direct way gives the same pixels and a warning
    image = image.convert(mode)
    if image.size != size:
        image = image.resize(size)
    return np.asarray(image).reshape(*shape[1:], -1).transpose(2, 0, 1)


def in_words(error: Exception) -> str:
    """Return why an image cannot be decoded, without a full stop."""
    if isinstance(error, UnidentifiedImageError):  # its own words show an object's address
        return f"it is none of {', '.join(FORMATS)}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(reason).rstrip(". ") or type(error).__name__


def few(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    return printable(listed(names, 3, ", "))


def read_each(
    paths: Sequence[Path], shape: tuple[int, ...]
) -> tuple[Tensor, list[bool | Exception]]:
    """Return images of files at one shape, uint8 (n, C, H, W), and what was found of each.

    That is whether it had colours where grey ones are wanted, or the other way round; or why it
    cannot be decoded, and its pixels mean nothing.
    """
    images = np.empty((len(paths), *shape), np.uint8)

    def fill(image: Image.Image, index: int) -> bool:
        is_grey = _is_grey(image)  # before a JPEG is decoded as grey
        images[index] = _pixels(image, shape)
        return is_grey != (shape[0] == 1)

    found = _attempt_each(paths, fill)
    return torch.from_numpy(images), found


def for_each_image(
    paths: Sequence[Path], root: Path, function: Callable[[Image.Image, int], Result]
) -> list[Result]:
    """Call `function` with each image and its index; a ValueError names those at which it fails."""
    results = _attempt_each(paths, function)
    failures = {i: result for i, result in enumerate(results) if isinstance(result, Exception)}
    if failures:
        named = few([_below(paths[i], root) for i in failures])
        why = in_words(next(iter(failures.values())))
        raise ValueError(
            f"{len(failures)} of {len(paths)} images in {root} cannot be decoded, {named} "
            f"(the first: {why}): remove or replace them."
        )
    return [result for result in results if not isinstance(result, Exception)]


def _below(path: Path, root: Path) -> str:
    return str(path.relative_to(root))


def _attempt_each(
    paths: Sequence[Path], function: Callable[[Image.Image, int], Result]
) -> list[Result | Exception]:
    """Call `function` with each image and its index, in threads; what fails is in its place."""

    def attempt(index: int) -> Result | Exception:
        try:
            with open_file(paths[index]) as file, Image.open(file, formats=FORMATS) as image:
                return function(image, index)
        except Exception as error:  # a damaged image shows as nearly any exception
            return error

    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.filterwarnings("ignore", "Corrupt EXIF data")  # the pixels may be whole
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return list(pool.map(attempt, range(len(paths))))
