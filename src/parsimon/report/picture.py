"""The picture: original, perturbation and adversarial image, one column for each of a few images."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from parsimon.core.types import Image

_SIDE, _GAP, _LEFT, _CAPTION = 132, 10, 104, 62  # in picture pixels
_LEVELS = 33  # of a perturbation, one of them no change: enough for the eye, and half the bytes of 256
_INK, _MUTED, _PAPER = (32, 33, 36), (110, 114, 120), (255, 255, 255)


@dataclass(frozen=True)
class Example:
    """One successful attack, and the lines to write under it."""

    original: Image
    adversarial: Image
    caption: Sequence[str]


def save_examples(examples: Sequence[Example], eps: float, path: Path) -> None:
    """Draw the examples side by side, the perturbation stretched so that -eps is black and +eps white."""
    rows = ["original", "perturbation", "adversarial"]
    width = _LEFT + len(examples) * (_SIDE + _GAP) + _GAP
    height = _GAP + 3 * (_SIDE + _GAP) + _CAPTION
    sheet = Pillow.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    for row, name in enumerate(rows):
        middle = _GAP + row * (_SIDE + _GAP) + _SIDE // 2
        pen.text((_GAP, middle), name, fill=_MUTED, font=font, anchor="lm")
    for column, example in enumerate(examples):
        left = _LEFT + column * (_SIDE + _GAP)
        perturbation = perturbation_of(example.original, example.adversarial, eps)
        for row, image in enumerate((example.original, perturbation, example.adversarial)):
            sheet.paste(_tile(image), (left, _GAP + row * (_SIDE + _GAP)))
        for line, text in enumerate(example.caption):
            top = _GAP + 3 * (_SIDE + _GAP) + line * 18
            pen.text((left + _SIDE // 2, top), text, fill=_INK if line == 0 else _MUTED, font=font, anchor="mt")
    sheet.save(path)


def as_bytes(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """An image as pictures hold it, grey or colour. Of channels that are neither, the first is shown."""
    levels = np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(levels[:3].transpose(1, 2, 0)) if len(levels) >= 3 else levels[0]


def as_rgb(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """The same with three channels, (rows, columns, 3), whatever the image has."""
    return np.asarray(Pillow.fromarray(as_bytes(image)).convert("RGB"))


def perturbation_of(original: Image, adversarial: Image, eps: float) -> NDArray[np.floating]:
    """What was added to an image, stretched so that -eps is black and +eps white."""
    stretched = 0.5 + (adversarial - original) / (2 * eps)
    rounded: NDArray[np.floating] = np.rint(stretched * (_LEVELS - 1)) / (_LEVELS - 1)
    return rounded


def png(image: NDArray[np.floating]) -> bytes:
    """A picture at its natural size."""
    file = io.BytesIO()
    Pillow.fromarray(as_bytes(image)).save(file, "PNG", optimize=True)
    return file.getvalue()


def _tile(image: NDArray[np.floating]) -> Pillow.Image:
    """An image of any shape, grey or colour, fitted into a square tile without smoothing its pixels away."""
    picture = Pillow.fromarray(as_rgb(image))
    scale = _SIDE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    method = Pillow.Resampling.NEAREST if scale >= 1 else Pillow.Resampling.LANCZOS
    tile = Pillow.new("RGB", (_SIDE, _SIDE), _PAPER)
    tile.paste(picture.resize(size, method), ((_SIDE - size[0]) // 2, (_SIDE - size[1]) // 2))
    return tile
