"""Adversarial images as files: PNG pictures, an npz archive of floats, and a CSV index of both.

A PNG file holds 8 bits per pixel. Rounding may leave the ball or undo a success, so each file is read back and checked.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from parsimon.core.model import Model
from parsimon.core.threat import predicted_classes
from parsimon.core.types import Image
from parsimon.errors import InputError
from parsimon.report.export import csv_cell
from parsimon.report.picture import png
from parsimon.results.result import Result
from parsimon.runs.classify import classify
from parsimon.runs.verification import Redrawn, in_ball, redraw

Form = Literal["png", "npz", "both"]
INDEX, ARCHIVE = "index.csv", "adversarial.npz"
_BATCH = 64  # images


class Row(NamedTuple):
    """The columns of the index, in order. The last three are empty without PNG files."""

    attack: str
    image: int  # its number, as in results.csv
    label: int
    predicted: int | None
    queries: int
    file: str | None = None
    in_ball_as_png: bool | None = None
    fools_as_png: bool | None = None


def export_adversarial(
    results: Mapping[str, Result], goals: NDArray[np.intp], folder: Path, form: Form, model: Model | None
) -> list[Row]:
    """Write the adversarial images of all successes into a new folder; return the rows of the index.

    Args:
        results: The attacks by name.
        goals: The class that each image must leave or reach.
        folder: Must not hold files.
        form: PNG files, an archive, or both.
        model: Queried once for each PNG file. The archive does not need it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already; choose another folder")
    shape = np.asarray(next(iter(results.values())).images[0]).shape
    if form != "npz" and shape[0] not in (1, 3):
        raise InputError(f"PNG files have 1 or 3 channels; these images have {shape[0]}: choose the form 'npz'")
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    kept: list[Redrawn] = []
    for number, (name, result) in enumerate(results.items(), 1):
        pictures = None if form == "npz" else _Pictures(folder, _folder_name(number, name), goals, model)
        for batch in redraw(result.images, result.outcomes, result.threat, _BATCH):
            found = [_row(name, result, each) for each in batch]
            rows += found if pictures is None else pictures.write(found, batch, result)
            kept += [] if form == "png" else batch
    if form != "png":
        _write_archive(folder / ARCHIVE, rows, kept, shape)
    with (folder / INDEX).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerows([Row._fields, *([csv_cell(value) for value in row] for row in rows)])
    return rows


@dataclass(frozen=True)
class _Pictures:
    """Writes the PNG files of one attack into a folder of their own, and checks them."""

    base: Path
    name: str
    goals: NDArray[np.intp]
    model: Model | None

    def write(self, rows: Sequence[Row], batch: Sequence[Redrawn], result: Result) -> list[Row]:
        """Write a batch; return its rows with the names of the files and what the checks say."""
        assert self.model is not None, "PNG files are checked with the model"
        (self.base / self.name).mkdir(exist_ok=True)
        files = [f"{self.name}/{row.image:06d}.png" for row in rows]
        for file, each in zip(files, batch, strict=True):
            (self.base / file).write_bytes(png(each.image))
        images = [_read_png(self.base / file) for file in files]
        # Half a unit in the last place of both images: single precision cannot represent k / 255 exactly.
        threat = replace(result.threat, rounding="nearest")
        inside = [in_ball(each.original, image, threat) for each, image in zip(batch, images, strict=True)]
        predicted = predicted_classes(classify(self.model, np.stack(images), _BATCH, result.clean.columns))
        hits = predicted == self.goals[[row.image for row in rows]]
        fools = hits if threat.targeted else ~hits
        checks = zip(files, inside, fools.tolist(), strict=True)
        return [Row(*row[:5], *each) for row, each in zip(rows, checks, strict=True)]


def _row(name: str, result: Result, each: Redrawn) -> Row:
    outcome = each.outcome
    return Row(name, outcome.index, int(result.labels[outcome.index]), outcome.predicted, outcome.queries)


def _folder_name(number: int, attack: str) -> str:
    """Return a name for an attack's pictures; the number keeps names apart that look alike as files."""
    plain = re.sub(r"[^\w.-]+", "_", attack)
    return f"{number}-{plain[:60]}"


def _read_png(path: Path) -> Image:
    """Return a PNG file as a loader of images would: (channels, rows, columns), k / 255."""
    with Pillow.open(path) as opened:
        levels = np.atleast_3d(np.asarray(opened))
    return np.ascontiguousarray(levels.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)


def _write_archive(path: Path, rows: Sequence[Row], kept: Sequence[Redrawn], shape: tuple[int, ...]) -> None:
    """Write images and originals as floats, beside the columns of the index."""
    empty = np.empty((0, *shape), np.float32)
    np.savez(
        path,
        images=np.stack([each.image for each in kept]) if kept else empty,
        originals=np.stack([each.original for each in kept]) if kept else empty,
        labels=np.array([row.label for row in rows], np.int64),
        predicted=np.array([row.predicted for row in rows], np.int64),
        queries=np.array([row.queries for row in rows], np.int64),
        attacks=np.array([row.attack for row in rows], np.str_),
        numbers=np.array([row.image for row in rows], np.int64),
    )
