"""Adversarial images as pictures: original, perturbation and adversarial image, with their caption."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from parsimon import catalogue
from parsimon.core.types import Outcome
from parsimon.results.result import CleanPredictions, Result

_SIDE, _GAP, _LEFT, _CAPTION, _LINE = 132, 10, 104, 62, 18  # pixels of the sheet
_LEVELS = 33  # of a perturbation: enough for the eye, and half the bytes of 256
_INK, _MUTED, _PAPER = (32, 33, 36), (110, 114, 120), (255, 255, 255)


class Triptych(NamedTuple):
    """The three pictures of a success."""

    original: NDArray[np.floating]
    perturbation: NDArray[np.floating]  # stretched so that -eps is black and +eps white
    adversarial: NDArray[np.floating]


def triptych(result: Result, outcome: Outcome) -> Triptych:
    """Return original, perturbation and adversarial image of a success."""
    original, adversarial = np.asarray(result.images[outcome.index]), result.draw(outcome)
    stretched = 0.5 + (adversarial - original) / (2 * result.threat.eps)
    return Triptych(original, np.rint(stretched * (_LEVELS - 1)) / (_LEVELS - 1), adversarial)


def class_names(given: Sequence[str] | None, clean: CleanPredictions) -> Sequence[str] | None:
    """Return the names of a model's classes: those of the data, or ImageNet's for 1,000 classes; None if unknown.

    A model that returns labels may have more classes than were seen, so more names fit.
    """
    if given is not None and (len(given) == clean.classes or (clean.kind == "labels" and len(given) > clean.classes)):
        return given
    return catalogue.imagenet_classes() if clean.classes == catalogue.IMAGENET_CLASSES else None


def caption(result: Result, outcome: Outcome, classes: Sequence[str] | None) -> tuple[str, str, str]:
    """Return the caption of a success: true class, predicted class, both with their confidence, and queries."""
    names = class_names(classes, result.clean) or ()

    def seen(label: int, confidence: float | None) -> str:
        name = names[label] if label < len(names) else f"class {label}"
        return name if confidence is None else f"{name} {confidence:.0%}{' of draws' * result.random}"

    before = seen(int(result.labels[outcome.index]), result.clean.confidence_of(outcome.index))
    after = seen(outcome.predicted or 0, outcome.confidence)
    return before, f"as {after}", f"{outcome.queries:,} {'query' if outcome.queries == 1 else 'queries'}"


def save_examples(result: Result, fooled: Sequence[Outcome], classes: Sequence[str] | None, path: Path) -> None:
    """Draw some successes side by side, one column each."""
    width = _LEFT + len(fooled) * (_SIDE + _GAP) + _GAP
    height = _GAP + 3 * (_SIDE + _GAP) + _CAPTION
    sheet = Pillow.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    tops = [_GAP + row * (_SIDE + _GAP) for row in range(4)]
    for top, name in zip(tops, Triptych._fields, strict=False):
        pen.text((_GAP, top + _SIDE // 2), name, fill=_MUTED, font=font, anchor="lm")
    for column, outcome in enumerate(fooled):
        left = _LEFT + column * (_SIDE + _GAP)
        for top, image in zip(tops, triptych(result, outcome), strict=False):
            sheet.paste(_tile(image), (left, top))
        for line, text in enumerate(caption(result, outcome, classes)):
            place = left + _SIDE // 2, tops[3] + line * _LINE
            pen.text(place, text, fill=_INK if line == 0 else _MUTED, font=font, anchor="mt")
    sheet.save(path)


def as_bytes(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return an image as 8-bit grey or RGB pixels. With two channels, the first is shown."""
    levels = np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(levels[:3].transpose(1, 2, 0)) if len(levels) >= 3 else levels[0]


def as_rgb(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return an image as 8-bit RGB pixels (rows, columns, 3)."""
    return np.asarray(Pillow.fromarray(as_bytes(image)).convert("RGB"))


def png(image: NDArray[np.floating]) -> bytes:
    """Return an image as a PNG file of the same size."""
    file = io.BytesIO()
    Pillow.fromarray(as_bytes(image)).save(file, "PNG", optimize=True)
    return file.getvalue()


def _tile(image: NDArray[np.floating]) -> Pillow.Image:
    """Return an image fitted into a square tile; enlarged pixels stay sharp."""
    picture = Pillow.fromarray(as_rgb(image))
    scale = _SIDE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    method = Pillow.Resampling.NEAREST if scale >= 1 else Pillow.Resampling.LANCZOS
    tile = Pillow.new("RGB", (_SIDE, _SIDE), _PAPER)
    tile.paste(picture.resize(size, method), ((_SIDE - size[0]) // 2, (_SIDE - size[1]) // 2))
    return tile
