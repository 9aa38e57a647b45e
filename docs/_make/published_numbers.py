"""Write docs/published.md: every number of the paper beside ours.

The paper's numbers are in src/parsimon/experiments, ours in published.toml beside this script. A test compares the page
with the output of this script.

    python docs/_make/published_numbers.py                      # write the page
    python docs/_make/published_numbers.py --take RUN_FOLDER    # first add a stored run of an exhibit to published.toml
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from parsimon import runs
from parsimon.attacks.registry import attack_rows
from parsimon.experiments import Exhibit, PlannedRun, Published, exhibits
from parsimon.experiments.views import label
from parsimon.results.statistics import wilson_interval
from parsimon.results.summary import summarise, where_fooled

HERE = Path(__file__).parent
OURS, PAGE = HERE / "published.toml", HERE.parent / "published.md"

_COLUMNS = {"success": "success, %", "mean": "mean", "median": "median", "on_nes": "on NES's"}
_SETTING = re.compile(r", (\w+)=([\d.]+)")
_HEAD = """\
# Published numbers beside ours

Every number of the paper ([Moon, An and Song 2019](https://arxiv.org/abs/1905.06635)), beside what parsimon measured.

**Read the scale first.** The paper's networks and numbers of images need a GPU for days. Here, only Table 1 and Figure
1 were run on hundreds of images, on a smaller network with adversarial training. The ImageNet tables are a first look
at a few images, and their intervals are wide. To run a table or figure at any scale, the paper's included:
[Reproduce the paper](guides/reproduce.md).

In each table, the columns that begin with *paper* are the paper's. The others are parsimon's. An empty cell means: no
success, or not reported.

| column | meaning |
|---|---|
| success, % | share of the attacked images that were fooled |
| 95 % | Wilson interval of that share |
| mean, median | queries of the successes |
| on NES's | mean queries over the images that NES fooled too |

An attack of parsimon ends at its first success, PGD too. The paper counts all steps of PGD.
"""


def read() -> dict[str, Any]:
    """Return our results."""
    return tomllib.loads(OURS.read_text())


def page(ours: dict[str, Any]) -> str:
    """Return the whole page."""
    known = exhibits()
    seen: set[str] = set()
    parts = [_HEAD]
    for exhibit in known.values():
        fresh = [run for run in exhibit.runs if run.name not in seen]
        seen |= {run.name for run in fresh}
        if exhibit.bars:
            parts += [f"## {exhibit.title}\n", *_bars(exhibit, ours[exhibit.name])]
        elif exhibit.shows == "differences":
            parts += [f"## {exhibit.title}\n", *_differences(exhibit, ours[exhibit.name])]
        elif fresh:
            parts.append(f"## {exhibit.title}\n")
            for run in fresh:
                parts += _run(run, ours.get(run.name), ours["notes"].get(run.name))
    drawn = [each.title for each in known.values() if each.shows in ("curves", "examples", "bands")]
    parts.append("## Figures without numbers\n")
    parts.append("`parsimon reproduce` draws these from the runs above:\n")
    parts += [f"- {title}" for title in drawn]
    parts += ["", *_elsewhere(ours["elsewhere"])]
    return "\n".join(parts).rstrip() + "\n"


def _run(run: PlannedRun, ours: list[dict[str, Any]] | None, note: str | None) -> Iterator[str]:
    protocol = run.protocol
    yield f"**{run.title}**\n"
    yield from _conditions(run, ours or [], protocol.budget)
    if note is not None:
        yield f"{note}\n"
    if ours is None:
        yield f"Not run here: the full protocol takes about {run.queries:,} queries.\n"
        yield from _table(run, None)
        return
    for measured in ours:
        if len(ours) > 1:
            yield f"On `{measured['model']}`:\n"
        yield from _table(run, measured)


def _conditions(run: PlannedRun, ours: list[dict[str, Any]], budget: int | None) -> Iterator[str]:
    yield "| run | network | images | budget |"
    yield "|---|---|--:|--:|"
    yield f"| paper | {run.network} | {run.protocol.images:,} | {'' if budget is None else f'{budget:,}'} |"
    for each in ours:
        limit = f"{each['budget']:,}" if "budget" in each else ""
        yield f"| parsimon | `{each['model']}` | {each['images']:,} | {limit} |"
    yield ""


def _table(run: PlannedRun, measured: dict[str, Any] | None) -> Iterator[str]:
    """Yield a row per attack. A number has a column for parsimon, if it was measured, and one for the paper."""
    paper = dict(zip(attack_rows(run.spec.attacks), run.paper, strict=True))
    rows = {label(name): (_ours(measured, name), _paper(published)) for name, published in paper.items()}
    rows |= {source: ({}, _paper(published)) for source, published in run.reported.items()}
    columns: dict[str, str] = {}
    for number, title in _COLUMNS.items():
        titles = {number: title, f"{number} 95": "95 %", f"paper {number}": f"paper: {title}"}
        filled = [key for key in titles if any(key in ours or key in theirs for ours, theirs in rows.values())]
        columns |= {key: titles[key] for key in filled}
    settings = list(dict.fromkeys(key for name in rows for key, _ in _SETTING.findall(name)))
    yield f"| attack | {' | '.join([*(f'`{each}`' for each in settings), *columns.values()])} |"
    yield "|---|" + "--:|" * (len(settings) + len(columns))
    for name, (ours, theirs) in rows.items():
        cells = {**dict.fromkeys([*settings, *columns], ""), **dict(_SETTING.findall(name)), **ours, **theirs}
        yield f"| {_SETTING.sub('', name)} | {' | '.join(cells[key] for key in [*settings, *columns])} |"
    yield ""


def _paper(published: Published) -> dict[str, str]:
    numbers = {number: getattr(published, number) for number in _COLUMNS}
    return {f"paper {number}": f"{value:,g}" for number, value in numbers.items() if value is not None}


def _ours(measured: dict[str, Any] | None, name: str) -> dict[str, str]:
    if measured is None or name not in measured["attacks"]:
        return {}
    mine, images = measured["attacks"][name], measured["images"]
    low, high = wilson_interval(mine["fooled"], images)
    cells = {"success": f"{100 * mine['fooled'] / images:.1f}", "success 95": f"{100 * low:.1f} to {100 * high:.1f}"}
    for number in ("mean", "median", "on_nes"):
        if number in mine:
            cells[number] = f"{mine[number]:,.{1 if mine[number] < 1000 else 0}f}".removesuffix(".0")
    return cells


def _bars(exhibit: Exhibit, ours: dict[str, Any]) -> Iterator[str]:
    (run,) = exhibit.runs
    yield "The share of pixels that PGD changes by each amount. The paper breaks its axis, so its numbers are read off"
    yield "the labels of its bars.\n"
    yield from _conditions(run, [ours], None)
    yield "| change, of 255 | parsimon, % | paper, % |"
    yield "|--:|--:|--:|"
    steps = range(-(len(exhibit.bars) - 1), len(exhibit.bars), 2)
    for step, mine, theirs in zip(steps, ours["bars"], exhibit.bars, strict=True):
        yield f"| {step} | {mine:.2f} | {theirs:.2f} |"
    yield ""


def _differences(exhibit: Exhibit, ours: dict[str, Any]) -> Iterator[str]:
    (run,) = exhibit.runs
    yield "The loss that each search reaches, minus that of PGD. The paper has only a picture: greedy insertion is near"
    yield "PGD, and local search slightly above.\n"
    yield from _conditions(run, [ours], None)
    yield "| search | mean | lowest | highest | above PGD, % of images | queries per image |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, row in ours["searches"].items():
        numbers = [f"{row[key]:+.3f}" for key in ("mean", "lowest", "highest")]
        yield f"| {name} | {' | '.join(numbers)} | {row['above']} | {row['queries']:,} |"
    yield ""


def _elsewhere(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Later attacks, as published elsewhere\n"
    yield "Results of later papers on ImageNet: untargeted, eps 0.05, at most 10,000 queries. They were not run here at"
    yield "that scale. [The paper's table beside ours](rivals.md#their-successors) has these attacks on the bundled"
    yield "network.\n"
    yield "| network | attack | success, % | mean | median |"
    yield "|---|---|--:|--:|--:|"
    for row in rows:
        yield f"| {row['network']} | {row['attack']} | {row['success']:g} | {row['mean']} | {row['median']} |"


def taken(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the numbers of a stored run of an exhibit."""
    name = folder.name.rpartition("-")[0]
    spec, comparison = runs.config_of(folder), runs.load(folder)
    if comparison.unfinished:
        raise SystemExit(f"{folder} is not finished: parsimon resume {folder}")
    reference = comparison.results.get(comparison.relative_to or "")
    attacks: dict[str, Any] = {}
    for row, result in comparison.results.items():
        summary = result.summary
        numbers: dict[str, Any] = {"fooled": summary.successes, "mean": summary.mean, "median": summary.median}
        if reference is not None:
            numbers["on_nes"] = summarise(where_fooled(reference.outcomes, result.outcomes), result.budget).mean
        attacks[row] = {key: value for key, value in numbers.items() if value is not None}
    images = next(iter(comparison.results.values())).summary.attacked
    what = {"model": spec.model, "data": spec.data, "images": images, "budget": spec.budget}
    return name, {**what, "attacks": attacks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--take", nargs="+", type=Path, default=[], metavar="RUN_FOLDER")
    ours = read()
    for folder in parser.parse_args().take:
        name, measured = taken(folder)
        scale = [measured[key] for key in ("model", "images", "budget")]
        others = [each for each in ours.get(name, []) if [each[key] for key in ("model", "images", "budget")] != scale]
        ours[name] = [*others, measured]
        OURS.write_text(tomli_w.dumps(ours))
    PAGE.write_text(page(ours))


if __name__ == "__main__":
    main()
