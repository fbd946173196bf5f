"""Decode the images of class folders once, and read them from the cache afterwards."""

import json
import os
import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
import torch
from filelock import FileLock
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fl_core.data.image_files import ClassFiles, ImageFiles, checksum, hold_out, list_images
from fl_core.data.samples import Split
from fl_core.files import open_file, replacing
from fl_core.text import listed, one_line, printable

# Pillow tries no other format, for any file name: some start other programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
GREY_MODES = {"1", "L", "LA", "La"}
COLOUR_MODES = {"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"}
MIN_SIDE, MAX_SIDE = 28, 224  # pixels, of a size that is chosen here

_VERSION = 6  # raise it when the same files give other tensors, so that no old ones are read

Result = TypeVar("Result")


def read_image_folder(path: Path, cache: Path, *, size: tuple[int, int] | None = None) -> Split:
    """Read images in class folders, laid out as in `list_images`: grey or colour, of any size.

    Without a test folder, some are held out (`hold_out`). Images become uint8 (n, C, H, W), upright
    as their EXIF data say, on white where they are transparent, and stretched to `size`, or else
    `common_size`. They are decoded once, into the folder `cache`, and again when files change.
    """
    files = list_images(path)
    decode = partial(decode_images, files, path, size)
    return decode_cached(cache, f"{path.resolve()}\0{size}", checksum(files.all_images()), decode)


def decode_cached(cache: Path, key: str, stamp: str, decode: Callable[[], Split]) -> Split:
    """Return the images that the cache has under a key and a stamp, or decode and store them.

    They are mapped from the file, so that processes share their memory. While one decodes, others
    wait for it.
    """
    stamp = f"{_VERSION} {PIL.__version__} {stamp}"
    name = blake2b(os.fsencode(key), digest_size=16).hexdigest()
    stored = cache / "datasets" / f"{name}.safetensors"
    stored.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(stored.with_suffix(".lock"), mode=0o600):
        images = _load(stored, stamp)
        if images is None:
            _save(stored, stamp, decode())
            images = _load(stored, stamp)
    if images is None:
        raise OSError(f"{stored}, just written, cannot be read: set FL_CACHE_DIR to another disk.")
    return images


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
    names, notes = (tuple(json.loads(metadata[key])) for key in ("classes", "notes"))
    return Split(**tensors, class_names=names, notes=notes)


def _save(stored: Path, stamp: str, images: Split) -> None:
    tensors = {name: part for name, part in images._asdict().items() if isinstance(part, Tensor)}
    texts = {"classes": json.dumps(images.class_names), "notes": json.dumps(images.notes)}
    metadata = {"stamp": stamp, **texts}
    with replacing(stored, private=True) as temporary:  # the images may be confidential
        save_file(tensors, temporary, metadata=metadata)


def decode_images(files: ImageFiles, root: Path, size: tuple[int, int] | None = None) -> Split:
    """Decode the images that were listed in a folder, as `read_image_folder` describes."""
    channels, *chosen = common_shape(files, root)
    shape = (channels, *(size or chosen))
    class_names = tuple(files.train)
    files = hold_out(files)
    transparent: list[str] = []

    def decoded(part: ClassFiles) -> tuple[Tensor, Tensor]:
        paths = [path for paths in part.values() for path in paths]
        images = np.empty((len(paths), *shape), np.uint8)

        def fill(image: Image.Image, index: int) -> bool:
            images[index] = _pixels(image, shape)
            return _is_transparent(image)

        marks = zip(paths, for_each_image(paths, root, fill), strict=True)
        transparent.extend(str(path.relative_to(root)) for path, mark in marks if mark)
        counts = torch.tensor([len(part.get(name, ())) for name in class_names])
        labels = torch.arange(len(counts)).repeat_interleave(counts)
        return torch.from_numpy(images), labels

    split = Split(*decoded(files.train), *decoded(files.test), class_names)
    images = torch.cat([split.train_samples, split.test_samples])
    count = len(images)
    if count > 1 and torch.equal(images, images[:1].expand_as(images)):
        raise ValueError(f"all {count} images in {root} have the same pixels, so replace them.")
    note = (
        f"in {root}, {len(transparent)} of {count} images are transparent in part, and white "
        f"is put behind them: {first_names(transparent)}"
    )
    return split._replace(notes=(note,) * bool(transparent))


def common_shape(files: ImageFiles, root: Path) -> tuple[int, int, int]:
    """Return the shape (C, H, W) that `read_image_folder` chooses, from the images' headers."""
    paths = files.all_images()
    headers = for_each_image(paths, root, lambda image, _: (_size(image), _is_grey(image)))
    example = {is_grey: path for path, (_, is_grey) in zip(paths, headers, strict=True)}
    if len(example) > 1:
        raise ValueError(
            f"{root} mixes grey images ({example[True].relative_to(root)}) and colour images "
            f"({example[False].relative_to(root)}): convert them to one kind."
        )
    num_train = sum(map(len, files.train.values()))
    size = common_size([size for size, _ in headers[:num_train]])
    return 1 if True in example else 3, *size


def common_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the height and width for images of these sizes.

    One size of at most 224 pixels a side stays. Otherwise it is the median height and width, shrunk
    together until both are at most 224, rounded to a multiple of 4, at least 28.
    """
    if len({*sizes}) == 1 and max(sizes[0]) <= MAX_SIDE:
        return sizes[0]
    median = np.median(sizes, axis=0)
    scaled = median * min(1.0, MAX_SIDE / median.max())
    height, width = np.maximum(4 * np.round(scaled / 4), MIN_SIDE)
    return int(height), int(width)


def _is_grey(image: Image.Image) -> bool:
    """Return whether a header is of a grey image; refuse what Pillow would read only in part."""
    if image.mode not in GREY_MODES | COLOUR_MODES:
        # Pillow would clip them to 8 bits, not scale them.
        raise ValueError(f"images of mode {image.mode} are not supported, only 8 bits a channel")
    if isinstance(image, ImageFile.ImageFile) and any(map(_has_16_bits, image.tile)):
        raise ValueError("images of 16 bits a channel are not supported, only of 8 bits")
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # a photo, with previews of it
        only = "only the first would be read: save each as a file"
        raise ValueError(f"it has {frames} pages or frames, and {only}")
    return image.mode in GREY_MODES


def _has_16_bits(tile: Any) -> bool:
    """Return whether Pillow would keep only the upper 8 of 16 bits of a colour image."""
    arguments = tile.args if isinstance(tile.args, tuple) else (tile.args,)
    if tile.codec_name.startswith("ppm") and isinstance(arguments[-1], int):
        return arguments[-1] > 255  # the highest value of a pixel
    return re.search(";16[BLN]$", str(arguments[0])) is not None


def _is_transparent(image: Image.Image) -> bool:
    """Return whether any pixel is not opaque."""
    has_alpha = image.has_transparency_data
    return has_alpha and _with_alpha(image).getchannel("A").getextrema() != (255, 255)


def _with_alpha(image: Image.Image) -> Image.Image:
    return (image.convert("LA") if image.mode == "La" else image).convert("RGBA")


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, from 1 to 8, in an image's header."""
    if image.format == "TIFF":
        return 1  # Pillow turns them itself
    try:
        # PNG's method would decode the pixels, to find EXIF data that stand behind them.
        return int(Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF data raise nearly any exception; the pixels may be whole
        return 1


def _size(image: Image.Image) -> tuple[int, int]:
    """Return the height and width of an image when upright, from its header."""
    width, height = image.size
    return (width, height) if _orientation(image) >= 5 else (height, width)


def _pixels(
    image: Image.Image, shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Decode an image, upright, to uint8 of a shape (C, H, W)."""
    mode, size = "L" if shape[0] == 1 else "RGB", (shape[2], shape[1])
    is_upright = _orientation(image) == 1
    if image.size not in (size, size[::-1]):
        # A large JPEG is decoded at twice the size or more, which is quicker than in full.
        image.draft(mode, (2 * max(size), 2 * max(size)))
    if not is_upright:
        image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, _with_alpha(image))
    pixels = np.asarray(image.convert(mode).resize(size))
    return pixels.reshape(*shape[1:], -1).transpose(2, 0, 1)


def decoding_error(error: Exception) -> str:
    """Return why an image cannot be decoded, without a full stop."""
    if isinstance(error, UnidentifiedImageError):  # its text shows an object's address
        return f"it is none of {', '.join(FORMATS)}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(reason).rstrip(". ") or type(error).__name__


def first_names(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    return printable(listed(names, 3, ", "))


def read_each(
    paths: Sequence[Path], shape: tuple[int, ...]
) -> tuple[Tensor, list[bool | Exception]]:
    """Decode files to images of one shape, uint8 (n, C, H, W), and return an outcome for each.

    That is whether colour became grey or grey colour, or the exception of a file that failed.
    """
    images = np.empty((len(paths), *shape), np.uint8)

    def fill(image: Image.Image, index: int) -> bool:
        is_grey = _is_grey(image)  # before a JPEG is decoded as grey
        images[index] = _pixels(image, shape)
        return is_grey != (shape[0] == 1)

    return torch.from_numpy(images), _attempt_each(paths, fill)


def for_each_image(
    paths: Sequence[Path], root: Path, function: Callable[[Image.Image, int], Result]
) -> list[Result]:
    """Call `function` with each image and its index; a ValueError names the files that fail."""
    results = _attempt_each(paths, function)
    failures = {i: result for i, result in enumerate(results) if isinstance(result, Exception)}
    if failures:
        names = first_names([str(paths[i].relative_to(root)) for i in failures])
        reason = decoding_error(next(iter(failures.values())))
        raise ValueError(
            f"{len(failures)} of {len(paths)} images in {root} cannot be decoded, {names} "
            f"(the first: {reason}): remove or replace them."
        )
    return [result for result in results if not isinstance(result, Exception)]


def _attempt_each(
    paths: Sequence[Path], function: Callable[[Image.Image, int], Result]
) -> list[Result | Exception]:
    """Call `function` with each image and its index, in threads; return results or exceptions."""

    def attempt(index: int) -> Result | Exception:
        try:
            with open_file(paths[index]) as file, Image.open(file, formats=FORMATS) as image:
                return function(image, index)
        except Exception as error:  # a damaged image raises nearly any exception
            return error

    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.filterwarnings("ignore", "Corrupt EXIF data")  # the pixels may be whole
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return list(pool.map(attempt, range(len(paths))))
