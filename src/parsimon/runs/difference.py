"""Compare two stored runs or evaluations, an old and a new one, on the same images."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from parsimon.data.base import sample_order
from parsimon.errors import InputError, quote
from parsimon.results.diff import Diff, Difference, DiffRow, Standing, difference
from parsimon.results.evaluation import Evaluation
from parsimon.results.result import Comparison
from parsimon.results.text import radius_text
from parsimon.runs import stored
from parsimon.runs.config import SAMPLING, RunConfig
from parsimon.runs.evaluation import evaluation_config, is_evaluation, load_evaluation

# Two models are compared only if these agree: a weaker attack would make the new one look better. The defence may
# differ: what it buys is a separate question, and the title names it.
_MUST_AGREE = ("attacks", "budget", "targets", "loss", "eight_bit", "selection", "sample", "stochastic")
_RANDOM_HINT = "attack both with stochastic=True, which a model that is not random allows too"


@dataclass(frozen=True)
class _Cell:
    """One model at one radius."""

    config: RunConfig
    found: Comparison | Evaluation


_Key = tuple[str, float]  # model and radius
_Cells = dict[_Key, _Cell]


def diff(old: str | Path, new: str | Path) -> Diff:
    """Compare the robust accuracy of two runs, or of two evaluations, on the same images.

    Cells of equal radius are paired. Models are paired by name; if both have one model only, these two are paired.
    """
    (before, old_left), (after, new_left) = _read(Path(old)), _read(Path(new))
    left = [str(name) for name, unfinished in ((old, old_left), (new, new_left)) if unfinished]
    rows = [
        DiffRow(mine[0], its[0], its[1], _difference(before[mine], after[its])) for mine, its in _pairs(before, after)
    ]
    # All cells of an evaluation share these settings.
    first, second = (next(iter(cells.values())).config for cells in (before, after))
    defences = (first.defence or (), second.defence or ())
    return Diff(str(old), str(new), tuple(rows), tuple(left), *defences, random=first.stochastic or second.stochastic)


def check_baseline(baseline: Path, planned: Iterable[RunConfig]) -> None:
    """Refuse a baseline that planned runs could not be compared with, before they start."""
    if is_evaluation(baseline):
        settings = evaluation_config(baseline)
        stored_runs = [cell for model in settings.models for cell in settings.cells(model)]
    else:
        stored_runs = [stored.config_of(baseline)]
    before, after = (
        {(each.model, each.effective_radius): each for each in configs} for configs in (stored_runs, planned)
    )
    for mine, its in _pairs(before, after):
        _check_alike(before[mine], after[its])


def _read(folder: Path) -> tuple[_Cells, bool]:
    """Return the cells of a run or an evaluation, and whether anything is unfinished."""
    if not is_evaluation(folder):
        config, comparison = stored.config_of(folder), stored.load(folder)
        return {(config.model, config.effective_radius): _Cell(config, comparison)}, comparison.unfinished > 0
    settings, grid = evaluation_config(folder), load_evaluation(folder)
    cells = {
        (model, cell.effective_radius): _Cell(cell, found)
        for model, evaluations in grid.evaluations.items()
        for cell, found in zip(settings.cells(model), evaluations, strict=True)
    }
    return cells, grid.unfinished > 0


def _pairs(before: Collection[_Key], after: Collection[_Key]) -> list[tuple[_Key, _Key]]:
    """Return the cells to compare, of equal radius and of models with one name or the only ones."""
    old, new = ({model for model, _ in cells} for cells in (before, after))
    only = next(iter(old)) if len(old) == len(new) == 1 else None
    pairs = [((only or model, eps), (model, eps)) for model, eps in after if (only or model, eps) in before]
    if not pairs:
        raise InputError(f"no model and radius in common: {_listed(before)} before, and {_listed(after)} now")
    return pairs


def _check_alike(old: RunConfig, new: RunConfig) -> None:
    """Refuse two runs that did not attack the same images in the same way."""
    for name in (*_MUST_AGREE, *(SAMPLING if old.sampling and new.sampling else ())):
        # A default of the settings of random models equals the same number as typed.
        before, after = (getattr(each.sampling if name in SAMPLING else each, name) for each in (old, new))
        if before != after:
            hint = f": {_RANDOM_HINT}" if name == "stochastic" else ""
            raise InputError(
                f"both models must be attacked alike to be compared; {name} is {quote(before)} in the old run and "
                f"{quote(after)} in the new one{hint}"
            )
    if stored.data_of(old).fingerprint != stored.data_of(new).fingerprint:
        raise InputError(
            "both models must be attacked on the same images to be compared; the data of the two runs differ: use the "
            "same data, images and preprocess"
        )


def _difference(old: _Cell, new: _Cell) -> Difference | None:
    """Return the difference between two cells that are alike; None if one is unfinished."""
    _check_alike(old.config, new.config)
    if old.found.unfinished or new.found.unfinished:
        return None
    before, after = Standing.of(old.found), Standing.of(new.found)
    return difference(before, after, sample_order(len(before.robust), new.config.sample))


def _listed(cells: Iterable[_Key]) -> str:
    return ", ".join(f"{model} at {radius_text(eps)}" for model, eps in cells)
