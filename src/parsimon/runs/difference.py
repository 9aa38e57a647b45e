"""Compare two stored runs or evaluations, an old and a new one, on the same images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parsimon.data.base import sample_order
from parsimon.errors import InputError, quote
from parsimon.results.diff import Diff, Difference, DiffRow, Standing, difference
from parsimon.results.evaluation import Evaluation
from parsimon.results.result import Comparison
from parsimon.runs import stored
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import evaluation_config, is_evaluation, load_evaluation

# Two models are compared only if these agree: a weaker attack would make the new one look better.
_MUST_AGREE = ("attacks", "budget", "targets", "loss", "eight_bit", "selection", "sample")


@dataclass(frozen=True)
class _Cell:
    """One model at one radius."""

    config: RunConfig
    found: Comparison | Evaluation


_Cells = dict[tuple[str, float], _Cell]  # by model and radius


def diff(old: str | Path, new: str | Path) -> Diff:
    """Compare the robust accuracy of two runs, or of two evaluations, on the same images.

    Cells of equal radius are paired. Models are paired by name; if both have one model only, these two are paired.
    """
    (before, old_left), (after, new_left) = _read(Path(old)), _read(Path(new))
    left = [str(name) for name, unfinished in ((old, old_left), (new, new_left)) if unfinished]
    rows = []
    for old_model, new_model in _model_pairs(before, after):
        for (model, eps), cell in after.items():
            if model == new_model and (old_model, eps) in before:
                found = _difference(before[old_model, eps], cell)
                rows.append(DiffRow(old_model, new_model, eps, found))
    if not rows:
        raise InputError(f"{old} and {new} have no model and radius in common: {_listed(before)}; {_listed(after)}")
    return Diff(str(old), str(new), tuple(rows), tuple(left))


def _read(folder: Path) -> tuple[_Cells, bool]:
    """Return the cells of a run or an evaluation, and whether anything is unfinished."""
    if not is_evaluation(folder):
        config, comparison = stored.config_of(folder), stored.load(folder)
        return {(config.model, config.radius): _Cell(config, comparison)}, comparison.unfinished > 0
    settings, grid = evaluation_config(folder), load_evaluation(folder)
    cells = {
        (model, cell.radius): _Cell(cell, found)
        for model, evaluations in grid.evaluations.items()
        for cell, found in zip(settings.cells(model), evaluations, strict=True)
    }
    return cells, grid.unfinished > 0


def _model_pairs(before: _Cells, after: _Cells) -> list[tuple[str, str]]:
    old, new = ([*dict.fromkeys(model for model, _ in cells)] for cells in (before, after))
    if len(old) == len(new) == 1:
        return [(old[0], new[0])]
    return [(model, model) for model in new if model in old]


def _difference(old: _Cell, new: _Cell) -> Difference | None:
    """Return the difference between two cells; None if one is unfinished. Refuse cells that are not alike."""
    for name in _MUST_AGREE:
        before, after = getattr(old.config, name), getattr(new.config, name)
        if before != after:
            raise InputError(
                f"both models must be attacked alike to be compared; {name} is {quote(before)} in the old run and "
                f"{quote(after)} in the new one"
            )
    fingerprints = {stored.data_of(cell.config).fingerprint for cell in (old, new)}
    if len(fingerprints) > 1:
        raise InputError(
            "both models must be attacked on the same images to be compared; the data of the two runs differ: use the "
            "same data, images and preprocess"
        )
    if old.found.unfinished or new.found.unfinished:
        return None
    before, after = Standing.of(old.found), Standing.of(new.found)
    return difference(before, after, sample_order(len(before.robust), new.config.sample))


def _listed(cells: _Cells) -> str:
    return ", ".join(f"{model} at {cell.config.eps}" for (model, _), cell in cells.items())
