"""Make the tables and figures of an exhibit, with our results beside the paper's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parsimon.attacks.registry import attack_rows
from parsimon.errors import InputError
from parsimon.experiments import Exhibit, PlannedRun, Published, Shows
from parsimon.experiments.surrogate import Climbed
from parsimon.report import figures
from parsimon.results.result import Comparison, Result
from parsimon.results.summary import summarise, where_fooled
from parsimon.results.table import Cell, Table
from parsimon.results.tables import Value, column, same_successes, success_column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Group = list[tuple[Cell, ...]]  # rows of a table

_EXAMPLES = 6
_HEADERS = {"success": "success", "mean": "mean", "median": "median", "on_nes": "on NES's"}


class CannotDrawError(InputError):
    """An exhibit whose runs have finished, but lack what it shows."""


class FinishedRun(NamedTuple):
    """A finished run of the paper and its results."""

    planned: PlannedRun
    comparison: Comparison
    climbed: Mapping[str, Climbed]  # only for figures 1 and 2
    classes: tuple[str, ...] | None


class View(NamedTuple):
    tables: list[Table]
    figures: dict[str, Figure]  # by the names of their files


def view(exhibit: Exhibit, done: Sequence[FinishedRun]) -> View:
    """Return the tables and figures of an exhibit."""
    return _VIEWS[exhibit.shows](exhibit, done)


def _table(_: Exhibit, done: Sequence[FinishedRun]) -> View:
    return View([paper_table(each) for each in done], {})


def _curves(_: Exhibit, done: Sequence[FinishedRun]) -> View:
    drawn = {}
    for planned, comparison, *_unused in done:
        black_box = {label(name): result for name, result in _by_kind(comparison, white_box=False)}
        white_box = {
            label(name): result.summary.success_at_least for name, result in _by_kind(comparison, white_box=True)
        }
        outcomes = {name: result.outcomes for name, result in black_box.items()}
        drawn[planned.name] = figures.success_curves(outcomes, planned.spec.budget, white_box)
    return View([paper_table(each) for each in done], drawn)


def _examples(exhibit: Exhibit, done: Sequence[FinishedRun]) -> View:
    ((_, comparison, _, classes),) = done
    _, result = next(_by_kind(comparison, white_box=False))
    fooled = [outcome for outcome in result.outcomes if outcome.success][:_EXAMPLES]
    if not fooled:
        raise CannotDrawError(
            f"{exhibit.title}: no image was fooled, so there are no examples: increase images or budget"
        )
    names = classes if classes is not None and len(classes) == result.clean.classes else None
    captions = []
    for outcome in fooled:
        seen = [int(result.labels[outcome.index]), int(outcome.predicted or 0)]
        captions.append(" as ".join(names[number] if names else str(number) for number in seen))
    pairs = [(np.asarray(result.images[outcome.index]), result.draw(outcome)) for outcome in fooled]
    return View([paper_table(done[0])], {exhibit.name: figures.examples(pairs, captions, width=figures.PAGE)})


def _sensitivity(exhibit: Exhibit, done: Sequence[FinishedRun]) -> View:
    points = []
    for name, result in done[0].comparison.results.items():
        summary = result.summary
        if summary.mean is not None:
            family, marker = _family(name)
            points.append(figures.Setting(family, summary.mean, summary.success_at_least, marker))
    return View([paper_table(done[0])], {exhibit.name: figures.sensitivity(points, width=figures.PAGE)})


def _bands(exhibit: Exhibit, done: Sequence[FinishedRun]) -> View:
    families: dict[str, list[Any]] = {}
    for result in done[0].comparison.results.values():
        families.setdefault(type(result.attack).__name__, []).append(result.outcomes)
    return View([paper_table(done[0])], {exhibit.name: figures.curve_bands(families, done[0].planned.spec.budget)})


def _grid(exhibit: Exhibit, done: Sequence[FinishedRun]) -> View:
    """Show a run whose attacks differ in two settings."""
    cells: list[dict[str, Any]] = []
    for name, result in done[0].comparison.results.items():
        values = {"success (%)": 100 * result.summary.success_at_least, "mean queries": result.summary.mean or np.nan}
        cells.append({**_settings(name), **values})
    rows, columns = list(cells[0])[:2]
    drawn = {f"{exhibit.name}-success": figures.grid(cells, rows, columns, "success (%)")}
    if not all(np.isnan(cell["mean queries"]) for cell in cells):
        drawn[f"{exhibit.name}-queries"] = figures.grid(cells, rows, columns, "mean queries", best="low")
    return View([paper_table(done[0])], drawn)


def _noise(exhibit: Exhibit, done: Sequence[FinishedRun]) -> View:
    ((planned, _, climbed, _),) = done
    (found,) = climbed.values()
    noise = found.perturbations()
    count, eps = len(exhibit.bars), planned.spec.radius
    shares = figures.noise_shares(noise, eps, count)
    rows = [
        [Cell(f"{255 * centre:.3g}"), Cell(f"{share:.2f}"), Cell(f"{paper:.2f}")]
        for centre, share, paper in zip(np.linspace(-eps, eps, count), shares, exhibit.bars, strict=True)
    ]
    notes = [
        *_conditions(planned, len(found.result.outcomes), limited=_limited(planned)),
        "Each bar counts the nearest values.",
    ]
    table = Table(f"{planned.title}: share of pixels, in %", ["change", "ours", "paper"], [rows], notes)
    return View([table], {exhibit.name: figures.noise_histogram(noise, eps, bars=count)})


def _differences(exhibit: Exhibit, done: Sequence[FinishedRun]) -> View:
    ((planned, _, climbed, _),) = done
    pgd, *searches = climbed.values()
    above = [search.losses - pgd.losses for search in searches]
    rows = [
        [
            Cell(name),
            *(Cell(f"{value:+.3f}") for value in (gain.mean(), np.median(gain), gain.min(), gain.max())),
            Cell(f"{100 * (gain > 0).mean():.0f}%"),
            Cell(f"{search.result.summary.queries / len(gain):,.0f}"),
        ]
        for name, search, gain in zip(list(climbed)[1:], searches, above, strict=True)
    ]
    headers = ["f minus PGD's", "mean", "median", "lowest", "highest", "above PGD", "queries"]
    notes = [
        *_conditions(planned, len(pgd.losses), limited=_limited(planned)),
        "Queries: mean per image until the search or its budget ends.",
        "In the paper, greedy insertion is near PGD, and local search slightly above.",
    ]
    table = Table(planned.title, headers, [rows], notes)
    return View([table], {exhibit.name: figures.sorted_differences(*above)})


_VIEWS: Mapping[Shows, Callable[[Exhibit, Sequence[FinishedRun]], View]] = {
    "table": _table,
    "curves": _curves,
    "examples": _examples,
    "sensitivity": _sensitivity,
    "bands": _bands,
    "grid": _grid,
    "noise": _noise,
    "differences": _differences,
}


def paper_table(done: FinishedRun) -> Table:
    """Return a table of our results beside the paper's, followed by results that the paper quotes."""
    planned, comparison = done.planned, done.comparison
    paper = dict(zip(attack_rows(planned.spec.attacks), planned.paper, strict=True))
    published = [*planned.paper, *planned.reported.values()]
    reported = [name for name in Published._fields if any(getattr(each, name) is not None for each in published)]
    shown = reported or ["success", "mean", "median"]  # some runs have only a figure in the paper

    def row_cells(names: Sequence[str], ours: Mapping[str, list[Cell]], theirs: Sequence[Published]) -> Group:
        columns = [[Cell(name) for name in names]]
        for number in shown:
            columns.append(ours[number])
            if reported:
                columns.append(_paper_column(theirs, number))
        return list(zip(*columns, strict=True))

    groups = []
    for white_box in (False, True):
        results = dict(_by_kind(comparison, white_box=white_box))
        if results:
            ours = _our_columns(list(results.values()), comparison)
            groups.append(row_cells([label(name) for name in results], ours, [paper[name] for name in results]))
    if planned.reported:
        nothing = dict.fromkeys(shown, [Cell("-")] * len(planned.reported))
        groups.append(row_cells(list(planned.reported), nothing, list(planned.reported.values())))

    headers = ["attack"]
    for number in shown:
        headers += [_HEADERS[number], *["paper"] * bool(reported)]
    notes = _conditions(planned, len(next(iter(comparison.results.values())).outcomes))
    if "on_nes" in shown:
        notes.append("On NES's: mean queries over the images that NES also fooled.")
    if any(_by_kind(comparison, white_box=True)):
        notes.append("Our PGD stops at a success; the paper counts all its steps.")
    return Table(planned.title, headers, groups, [*notes, "Interval of success: 95 %."])


def _our_columns(results: Sequence[Result], comparison: Comparison) -> dict[str, list[Cell]]:
    summaries = [result.summary for result in results]
    same = same_successes([result.outcomes for result in results])
    # The run's own table has the intervals of queries; there is no room for them here.
    columns = {
        "success": success_column(summaries),
        "mean": column([Value(each.mean) for each in summaries], ranked=same),
        "median": column([Value(each.median) for each in summaries], ranked=same),
    }
    reference = comparison.results.get(comparison.relative_to or "")
    if reference is None:  # not planned, or interrupted
        return {**columns, "on_nes": [Cell("-")] * len(results)}
    shared = [where_fooled(reference.outcomes, result.outcomes) for result in results]
    averages = [Value(summarise(each, reference.budget).mean) for each in shared]
    return {**columns, "on_nes": column(averages, ranked=same_successes(shared))}


def _paper_column(published: Sequence[Published], number: str) -> list[Cell]:
    values = [Value(getattr(each, number)) for each in published]
    if number == "success":
        return column(values, "{:.1f}%".format, lambda rate: -rate)
    return column(values, "{:,g}".format, ranked=False)


def _conditions(planned: PlannedRun, images: int, *, limited: bool = True) -> list[str]:
    """Return notes on our run and the paper's; `limited`: whether a budget applies."""
    ours, paper = planned.spec, planned.protocol
    limits = [f", at most {spec.budget:,} queries" if limited else "" for spec in (ours, paper)]
    return [
        f"Ours: {ours.model} on {ours.data}, {images:,} images{limits[0]}.",
        f"The paper: {planned.network}, {paper.images:,} images{limits[1]}.",
    ]


def _limited(planned: PlannedRun) -> bool:
    """Return whether a search that ends by itself has a smaller budget than the paper's."""
    return planned.spec.budget < planned.protocol.budget


def _by_kind(comparison: Comparison, *, white_box: bool) -> Iterator[tuple[str, Result]]:
    return ((name, each) for name, each in comparison.results.items() if each.attack.white_box == white_box)


def label(row: str) -> str:
    """Return a row's name without the preset, such as `NES` or `NES, momentum=0.5`."""
    return re.sub(r":[^,]*", "", row).replace(",", ", ")


def _settings(row: str) -> dict[str, str]:
    return dict(part.split("=") for part in label(row).split(", ")[1:])


def _family(row: str) -> tuple[str, str]:
    """Return the group of a marker, and its text: the value of the last setting."""
    name, *settings = label(row).split(", ")
    return ", ".join([name, *settings[:-1]]), settings[-1].partition("=")[2]
