"""Images in class folders or in a tar archive of them, decoded once and kept on disk."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np
import PIL
import torch
from filelock import FileLock
from PIL import ExifTags, Image, UnidentifiedImageError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fl_core.data.image_files import ImageFile, Splits, checksum, hold_out, listed_images
from fl_core.files import open_file, replacing
from fl_core.text import listed, one_line, printable

# No other format of Pillow's is tried, whatever a file's name: some start other programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
GREY_MODES = {"1", "L", "LA", "La"}
COLOUR_MODES = {"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"}
MIN_SIDE, MAX_SIDE = 28, 224  # of images whose size is chosen here

_VERSION = 3  # raise it when the same files give other tensors, so that no old ones are read
_MAX_THREADS = 16
_TURNS = {  # what puts an image upright, by its EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = {_TURNS[orientation] for orientation in (5, 6, 7, 8)}  # height and width swap

Result = TypeVar("Result")


class LabelledImages(NamedTuple):
    """Images of a folder with their labels.

    Attributes
    ----------
    train_images : Tensor, uint8, shape (n, C, H, W)
    train_labels : Tensor, int64, shape (n,)
        Indices into `classes`.
    test_images, test_labels : Tensor
        Empty where there is no test folder and nothing is held out.
    classes : tuple of str
        The class folders' names, sorted.
    is_in_time : bool
        Whether the order of those that train is time's, as of a table's rows.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    is_in_time: bool = False


class ImageSummary(NamedTuple):
    """What the images of a folder are, known from their headers.

    Attributes
    ----------
    classes : tuple of str
        The class folders' names, sorted.
    grey : bool
        Whether all images are grey; otherwise all have colours.
    size : tuple of int
        The height and width that `read_image_folder` chooses.
    """

    classes: tuple[str, ...]
    grey: bool
    size: tuple[int, int]


class _Header(NamedTuple):
    height: int
    width: int
    grey: bool


def read_image_folder(
    path: Path, cache: Path, *, size: tuple[int, int] | None = None, held_out: float = 0.0
) -> LabelledImages:
    """Read images in class folders, laid out as in `listed_images`: grey or colour, of any size.

    Without `size`, where all training images have one size, of 224 pixels a side at most, it is
    kept. Otherwise it is their median height and median width, shrunk together until both are at
    most 224, then rounded to a multiple of 4, 28 at least. Images of another size are stretched to
    it. Images are turned upright as their EXIF data say, and alpha is dropped.

    The tensors are kept in `cache`, in one file for each `path`, `size` and `held_out`, and mapped
    from there, so that processes share their memory. They are decoded again when the path, size or
    time of any file has changed. While one process decodes, others wait for it.

    Parameters
    ----------
    path : Path
        As in `listed_images`.
    cache : Path
        The folder for the decoded tensors.
    size : tuple of int, optional
        The height and width of all images.
    held_out : float
        The share of each class to make test images of, by `hold_out`, where there is no test
        folder; 0: none.

    Raises
    ------
    ValueError
        As `listed_images`, or if there are both grey and colour images, or a file cannot be
        decoded.
    OSError
        If the folder cannot be read or the cache cannot be written.
    """
    stamp = f"{_VERSION} {PIL.__version__} {checksum(path)}"
    key = os.fsencode(path.resolve())
    if size or held_out:
        key += f"\0{size}\0{held_out}".encode()
    name = blake2b(key, digest_size=16).hexdigest()
    stored = cache / "datasets" / f"{name}.safetensors"
    found = _load(stored, stamp)
    if found is not None:
        return found
    stored.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(stored.with_suffix(".lock")):
        found = _load(stored, stamp)  # by now another process may have written it
        if found is None:
            _decode_into(stored, path, stamp, size, held_out)
            found = _load(stored, stamp)
    if found is None:
        raise OSError(f"{stored}, just written, cannot be read: set FL_CACHE_DIR to another disk.")
    return found


def summarize_image_folder(path: Path) -> ImageSummary:
    """List what `read_image_folder` would find at `path`, without decoding any image.

    Raises
    ------
    ValueError, OSError
        As `read_image_folder`, but a file is only seen to be damaged if its header is.
    """
    with listed_images(path) as splits:
        return _summarized(splits, path)


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


def _load(stored: Path, stamp: str) -> LabelledImages | None:
    """Read the stored images; None if they are not there, of other images, or damaged."""
    try:
        with safe_open(stored, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("checksum") != stamp:
                return None
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError):
        return None
    return LabelledImages(
        tensors["train_images"],
        tensors["train_labels"],
        tensors.get("test_images", tensors["train_images"][:0]),
        tensors.get("test_labels", tensors["train_labels"][:0]),
        tuple(json.loads(metadata["classes"])),
    )


def _decode_into(
    stored: Path, path: Path, stamp: str, size: tuple[int, int] | None, held_out: float
) -> None:
    """Decode every image below `path` and write the tensors to `stored`."""
    with listed_images(path) as listed:
        summary = _summarized(listed, path)
        splits = hold_out(listed, held_out) if held_out else listed
        tensors = {}
        for split, folders in splits.items():
            files = [file for name in summary.classes for file in folders.get(name, ())]
            counts = torch.tensor([len(folders.get(name, ())) for name in summary.classes])
            tensors[f"{split}_images"] = _decode(files, path, size or summary.size, summary.grey)
            tensors[f"{split}_labels"] = torch.arange(len(counts)).repeat_interleave(counts)
    metadata = {"checksum": stamp, "classes": json.dumps(summary.classes)}
    with replacing(stored, private=True) as temporary:  # the images may be nobody else's business
        save_file(tensors, temporary, metadata=metadata)


def _summarized(splits: Splits, path: Path) -> ImageSummary:
    sizes: dict[str, list[tuple[int, int]]] = {}
    kinds: dict[bool, str] = {}
    for split, classes in splits.items():
        files = [file for some in classes.values() for file in some]
        headers = for_each_image(files, path, lambda image, _: header_of(image))
        sizes[split] = [(header.height, header.width) for header in headers]
        kinds |= {header.grey: file.path for file, header in zip(files, headers, strict=True)}
    if len(kinds) > 1:
        raise ValueError(
            f"{path} mixes grey images ({kinds[True]}) and colour images ({kinds[False]}): convert "
            "them to one kind."
        )
    return ImageSummary(tuple(splits["train"]), True in kinds, common_size(sizes["train"]))


def header_of(image: Image.Image) -> _Header:
    """Read an image's header, before its pixels are decoded."""
    if image.mode not in GREY_MODES | COLOUR_MODES:
        # Pillow would clip them to 8 bits, not scale them.
        raise ValueError(f"images of mode {image.mode} are not supported, only 8 bits a channel")
    width, height = _upright(image.size, _turn(image))
    return _Header(height, width, image.mode in GREY_MODES)


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return the turn that puts an image upright, by its header; None if it is upright."""
    if image.format == "TIFF":
        return None  # Pillow turns them itself
    try:
        # PNG's own method would decode the pixels, to find EXIF data that stand behind them.
        return _TURNS.get(Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF data show as nearly any exception and say nothing of pixels
        return None


def _upright(size: tuple[int, int], turn: Image.Transpose | None) -> tuple[int, int]:
    """Return width and height after, or else before, a turn."""
    return size[::-1] if turn in _SIDEWAYS else size


def _decode(files: Sequence[ImageFile], root: Path, size: tuple[int, int], grey: bool) -> Tensor:
    """Return the images of `files`, uint8 (n, C, H, W)."""
    images = np.empty((len(files), 1 if grey else 3, *size), np.uint8)

    def fill(image: Image.Image, index: int) -> None:
        images[index] = pixels_of(image, size, grey)

    for_each_image(files, root, fill)
    return torch.from_numpy(images)


def pixels_of(
    image: Image.Image, size: tuple[int, int], grey: bool
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Decode an image for a model: uint8 (C, H, W), upright, of `size` (height, width)."""
    mode = "L" if grey else "RGB"
    turn = _turn(image)
    stored = _upright((size[1], size[0]), turn)
    if image.size != stored:
        # A large JPEG is decoded at twice the size or more, which is quicker than in full.
        image.draft(mode, (2 * stored[0], 2 * stored[1]))
    if "transparency" in image.info and not grey:
        image = image.convert("RGBA")  # the direct way gives the same pixels and a warning
    image = image.convert(mode)
    if turn is not None:
        image = image.transpose(turn)
    if image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]))
    return np.asarray(image).reshape(*size, -1).transpose(2, 0, 1)


def in_words(error: Exception) -> str:
    """Return why an image cannot be decoded, without a full stop."""
    if isinstance(error, UnidentifiedImageError):  # its own words show an object's address
        return f"it is none of {', '.join(FORMATS)}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(reason).rstrip(". ") or type(error).__name__


def few(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    return printable(listed(names, 3, ", "))


def attempt_each(
    opened: Sequence[Callable[[], BinaryIO]], function: Callable[[Image.Image, int], Result]
) -> list[Result | Exception]:
    """Call `function` with each image and its index, in threads; what fails is in its place."""

    def attempt(index: int) -> Result | Exception:
        try:
            with opened[index]() as stream, Image.open(stream, formats=FORMATS) as image:
                return function(image, index)
        except Exception as error:  # a damaged image shows as nearly any exception
            return error

    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS)) as pool,
    ):
        warnings.filterwarnings("ignore", "Corrupt EXIF data")  # the pixels may be whole
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return list(pool.map(attempt, range(len(opened))))


def read_each(
    paths: Sequence[Path], shape: tuple[int, ...]
) -> tuple[Tensor, list[bool | Exception]]:
    """Return images of files at one shape, uint8 (n, C, H, W), and what was found of each.

    That is whether it had colours where grey ones are wanted, or the other way round; or why it
    cannot be decoded, and its pixels mean nothing.
    """
    images = np.empty((len(paths), *shape), np.uint8)
    grey = shape[0] == 1

    def fill(image: Image.Image, index: int) -> bool:
        is_recoloured = header_of(image).grey != grey  # before a JPEG is decoded as grey
        images[index] = pixels_of(image, (shape[1], shape[2]), grey)
        return is_recoloured

    found = attempt_each([partial(open_file, path) for path in paths], fill)
    return torch.from_numpy(images), found


def for_each_image(
    files: Sequence[ImageFile], root: Path, function: Callable[[Image.Image, int], Result]
) -> list[Result]:
    """Apply `function` to each image; a ValueError names those at which it fails."""
    results = attempt_each([file.open for file in files], function)
    failures = {i: result for i, result in enumerate(results) if isinstance(result, Exception)}
    if failures:
        named = few([files[i].path for i in failures])
        why = in_words(next(iter(failures.values())))
        raise ValueError(
            f"{len(failures)} of {len(files)} images in {root} cannot be decoded, {named} "
            f"(the first: {why}): remove or replace them."
        )
    return [result for result in results if not isinstance(result, Exception)]
