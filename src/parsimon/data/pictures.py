"""Read picture files and preprocess them. Files that need a guess to become 8-bit images are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import PIL.Image

from parsimon.core.types import Image
from parsimon.errors import InputError, first_line, quote

Interpolation = Literal["bilinear", "bicubic"]
Side = int | tuple[int, int]

_RESAMPLING = {"bilinear": PIL.Image.Resampling.BILINEAR, "bicubic": PIL.Image.Resampling.BICUBIC}
_LARGEST = 2**14  # pixels along a side
_MODES = {1: "L", 3: "RGB"}
_EIGHT_BIT = {"1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "PA", "RGBA", "RGBX"}


@dataclass(frozen=True)
class Preprocess:
    """How pictures become images: resize, then crop, then divide by 255. By default nothing is resized or cropped.

    Resizing uses Pillow's antialiasing on 8-bit pixels and rounds as torchvision's `Resize` and `CenterCrop` do, so
    every pixel is k / 255. EXIF orientation and colour profiles are ignored, as in torchvision's loaders.

    Attributes:
        resize: The length of the shorter side in pixels, keeping proportions, or exactly (rows, columns).
        crop: The side of a square cut from the centre, or its (rows, columns).
        interpolation: The resampling filter.
        channels: 3 for colour, which repeats a grey channel, or 1 for grey, which weighs colours by ITU-R 601.
    """

    resize: Side | None = None
    crop: Side | None = None
    interpolation: Interpolation = "bilinear"
    channels: Literal[1, 3] = 3

    def __post_init__(self) -> None:
        for name, side in (("resize", self.resize), ("crop", self.crop)):
            sides = side if isinstance(side, tuple) else (side, side)
            fits = len(sides) == 2 and all(type(each) is int and 0 < each <= _LARGEST for each in sides)
            if side is not None and not fits:
                raise InputError(
                    f"{name} must be a number of pixels, at most {_LARGEST:,}, or (rows, columns), or None; "
                    f"got {quote(side)}"
                )
        if not isinstance(self.interpolation, str) or self.interpolation not in _RESAMPLING:
            choices = " or ".join(get_args(Interpolation))
            raise InputError(f"interpolation must be {choices}; got {quote(self.interpolation)}")
        if type(self.channels) is not int or self.channels not in _MODES:
            raise InputError(f"channels must be 3 for colour or 1 for grey; got {quote(self.channels)}")

    def apply(self, picture: PIL.Image.Image) -> Image:
        """Return the image that the model receives."""
        picture = picture.convert(_MODES[self.channels])
        columns, rows = picture.size
        if isinstance(self.resize, int):
            shorter = min(rows, columns)  # the longer side is rounded down, as in torchvision
            rows, columns = int(self.resize * rows / shorter), int(self.resize * columns / shorter)
        elif self.resize is not None:
            rows, columns = self.resize
        if picture.size != (columns, rows):
            picture = picture.resize((columns, rows), _RESAMPLING[self.interpolation])
        if self.crop is not None:
            height, width = self.crop if isinstance(self.crop, tuple) else (self.crop, self.crop)
            if height > rows or width > columns:
                raise InputError(
                    f"the crop of {height} x {width} does not fit into {rows} x {columns}: set resize to at least the "
                    "shorter side of the crop"
                )
            top, left = round((rows - height) / 2), round((columns - width) / 2)
            picture = picture.crop((left, top, left + width, top + height))
        pixels = np.asarray(picture, np.uint8).reshape(picture.height, picture.width, self.channels)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)


def open_preprocess(text: str) -> Preprocess:
    """Parse a description of preprocessing such as `resize=256,crop=224,interpolation=bicubic`."""
    settings: dict[str, Any] = {}
    for assignment in filter(None, text.split(",")):
        key, _, value = (part.strip() for part in assignment.partition("="))
        if key in settings or key not in Preprocess.__dataclass_fields__:
            raise InputError(
                "preprocess takes resize=256 or 299x299, crop=224, interpolation=bicubic and channels=3, each at most "
                f"once, separated by commas; got {quote(assignment)} in {quote(text)}",
                argument="preprocess",
            )
        settings[key] = value if key == "interpolation" else _parse_side(value)
    return Preprocess(**settings)


def _parse_side(text: str) -> Any:
    """Parse `224` or `256x224`; `Preprocess` refuses anything else."""
    sides = [int(side) if side.isdecimal() and len(side) < 10 else side for side in text.split("x")]
    return sides[0] if len(sides) == 1 else tuple(sides)


def read_picture(file: Path | BytesIO, name: str, preprocess: Preprocess) -> Image:
    """Read a picture as an image; an error starts with its name."""
    try:
        with PIL.Image.open(file) as picture:
            return preprocess.apply(_check_eight_bit(picture))
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise InputError(f"{name} cannot be read as a picture: {first_line(error)}. Download it again.") from error


def _check_eight_bit(picture: PIL.Image.Image) -> PIL.Image.Image:
    """Return the picture if it is a single opaque frame with 8 bits per channel."""
    # Pillow silently reduces 16-bit colours to 8 bits; only the tiles reveal how the file stores them.
    wide = any(re.search(r";16[BLN]|65535", str(tile[3])) for tile in getattr(picture, "tile", ()))
    if picture.mode not in _EIGHT_BIT or wide:
        raise InputError(f"pictures must have 8 bits per channel; got {'16' if wide else picture.mode}: convert it")
    frames = getattr(picture, "n_frames", 1)
    if frames > 1 and picture.format != "MPO":  # cameras add a preview or a depth map to a JPEG
        raise InputError(f"a picture must have one frame; it has {frames}: save a single frame")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        if picture.getchannel("A").getextrema() != (255, 255):
            raise InputError("it has transparent pixels, and their background is unknown: save it without alpha")
    return picture
