"""From a picture of any size to an image of the model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import PIL.Image

from parsimon.core.types import Image
from parsimon.errors import InputError, quote

Interpolation = Literal["bilinear", "bicubic"]
Side = int | tuple[int, int]

_RESAMPLING = {"bilinear": PIL.Image.Resampling.BILINEAR, "bicubic": PIL.Image.Resampling.BICUBIC}
_LARGEST = 2**14  # pixels along a side
_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Preprocess:
    """How pictures become images, as the model's card says: resized, then cropped, then divided by 255.

    Nothing is resized or cropped unless it is asked for. Both are done on 8-bit pixels with Pillow's antialiasing, and
    round as torchvision's `Resize` and `CenterCrop` do on pictures, so every pixel is k / 255. An EXIF orientation and
    a colour profile are not applied, as torchvision's loaders do not apply them: turn such pictures beforehand.

    Attributes:
        resize: The shorter side in pixels, the picture keeping its proportions; or (rows, columns), exactly.
        crop: The side of a square cut from the centre, or its (rows, columns).
        interpolation: How pixels are resampled.
        channels: 3 for colour, a grey picture's channel repeated; 1 for grey, a coloured picture weighed by ITU-R 601.
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
        """The image that the model is shown."""
        picture = picture.convert(_MODES[self.channels])
        columns, rows = picture.size
        if isinstance(self.resize, int):
            shorter = min(rows, columns)  # the longer side is rounded down, as torchvision does
            rows, columns = int(self.resize * rows / shorter), int(self.resize * columns / shorter)
        elif self.resize is not None:
            rows, columns = self.resize
        if picture.size != (columns, rows):
            picture = picture.resize((columns, rows), _RESAMPLING[self.interpolation])
        if self.crop is not None:
            height, width = self.crop if isinstance(self.crop, tuple) else (self.crop, self.crop)
            if height > rows or width > columns:
                raise InputError(
                    f"the crop of {height} x {width} does not fit into {rows} x {columns}: set resize to the crop's "
                    "shorter side or more"
                )
            top, left = round((rows - height) / 2), round((columns - width) / 2)
            picture = picture.crop((left, top, left + width, top + height))
        pixels = np.asarray(picture, np.uint8).reshape(picture.height, picture.width, self.channels)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)
