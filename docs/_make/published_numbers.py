"""Write docs/published.md: every number of the paper beside ours.

The paper's numbers are in src/parsimon/experiments, ours in published.toml beside this script. A test compares the page
with the output of this script.

    python docs/_make/published_numbers.py                      # write the page
    python docs/_make/published_numbers.py --take RUN_FOLDER    # first add a stored run of an exhibit to published.toml
"""

from __future__ import annotations

import argparse
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
_NOT_RUN = "not run here"
_HEAD = """\
# Published numbers beside ours

Every number of the paper, and what parsimon measured of it, with what was run. `docs/_make/published_numbers.py` writes
this page from the experiment files and from stored runs.

**Read the scale first.** The paper's networks and numbers of images want a GPU for days. Only Table 1 and Figure 1 were
run here on hundreds of images, on a smaller network, adversarially trained too; all of ImageNet is a first look at a
few images, whose intervals say how little that is. What was not run says so. `parsimon reproduce NAME` runs an exhibit
at any scale, the paper's included: [Reproduce the paper](guides/reproduce.md).

In each pair of columns: **ours**, then the paper's. Success with its 95 % interval; mean and median queries of the
successes; on NES's: mean queries over the images that NES fooled too. Ours ends at a success, PGD too; the paper counts
all of PGD's steps.
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
    parts.append("Pictures of the runs above, which `parsimon reproduce` draws:\n")
    parts += [f"- {title}" for title in drawn]
    parts += ["", *_elsewhere(ours["elsewhere"])]
    return "\n".join(parts).rstrip() + "\n"


def _run(run: PlannedRun, ours: list[dict[str, Any]] | None, note: str | None) -> Iterator[str]:
    yield f"{run.title}. The paper: {run.network}, {run.protocol.images:,} images, {run.protocol.budget:,} queries.\n"
    if note is not None:
        yield f"{note}\n"
    if ours is None:
        yield f"Ours: {_NOT_RUN}. The full protocol is about {run.queries:,} queries of that network.\n"
        yield from _table(run, {"fooled": {}})
        return
    for measured in ours:
        yield f"Ours: {_conditions(measured)}, {measured['budget']:,} queries.\n"
        yield from _table(run, measured)


def _conditions(measured: dict[str, Any]) -> str:
    return f"{measured['model']} on {measured['data']}, {measured['images']:,} images"


def _table(run: PlannedRun, measured: dict[str, Any]) -> Iterator[str]:
    paper = dict(zip(attack_rows(run.spec.attacks), run.paper, strict=True))
    ours = measured.get("attacks", {})
    theirs = [*paper.values(), *run.reported.values()]
    shown = [
        number
        for number in _COLUMNS
        if any(getattr(each, number) is not None for each in theirs) or any(number in each for each in ours.values())
    ] or ["success"]
    headers = [column for number in shown for column in (_COLUMNS[number], "paper")]
    yield f"| attack | {' | '.join(headers)} |"
    yield "|---|" + "--:|" * len(headers)
    for name, published in paper.items():
        yield _row(label(name), shown, _ours(ours.get(name), measured.get("images", 0)), published)
    for source, published in run.reported.items():
        yield _row(source, shown, {}, published)
    yield ""


def _row(name: str, shown: list[str], ours: dict[str, str], published: Published) -> str:
    cells = []
    for number in shown:
        value = getattr(published, number)
        cells += [ours.get(number, ""), "" if value is None else f"{value:,g}"]
    return f"| {name} | {' | '.join(cells)} |"


def _ours(mine: dict[str, Any] | None, images: int) -> dict[str, str]:
    if mine is None:
        return {"success": _NOT_RUN}
    rate, (low, high) = mine["fooled"] / images, wilson_interval(mine["fooled"], images)
    cells = {"success": f"**{100 * rate:.1f}** ({100 * low:.1f} to {100 * high:.1f})"}
    for number in ("mean", "median", "on_nes"):
        cells[number] = f"**{mine[number]:,.{1 if mine[number] < 1000 else 0}f}**" if number in mine else "-"
    return cells


def _bars(exhibit: Exhibit, ours: dict[str, Any]) -> Iterator[str]:
    (run,) = exhibit.runs
    yield "The share of pixels that PGD changes by so much, in %. The paper, whose axis is broken, so that its bars are"
    yield f"read off their labels: {run.network}, {run.protocol.images:,} images. Ours: {_conditions(ours)}.\n"
    steps = range(-(len(exhibit.bars) - 1), len(exhibit.bars), 2)
    yield "| change, of 255 | " + " | ".join(map(str, steps)) + " |"
    yield "|---|" + "--:|" * len(exhibit.bars)
    yield "| ours | " + " | ".join(f"**{share:.2f}**" for share in ours["bars"]) + " |"
    yield "| paper | " + " | ".join(f"{share:.2f}" for share in exhibit.bars) + " |\n"


def _differences(exhibit: Exhibit, ours: dict[str, Any]) -> Iterator[str]:
    (run,) = exhibit.runs
    yield "The loss that each search reaches, minus PGD's. The paper has a picture: greedy insertion near PGD, local"
    yield f"search slightly above ({run.network}, {run.protocol.images:,} images). Ours: {_conditions(ours)}.\n"
    yield "| search | mean | lowest | highest | above PGD | queries per image |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, row in ours["searches"].items():
        numbers = [f"**{row[key]:+.3f}**" for key in ("mean", "lowest", "highest")]
        yield f"| {name} | {' | '.join(numbers)} | **{row['above']} %** | **{row['queries']:,}** |"
    yield ""


def _elsewhere(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Later attacks, as published elsewhere\n"
    yield "ImageNet, untargeted, eps 0.05, at most 10,000 queries: headline results of later papers."
    yield f"{_NOT_RUN.capitalize()} at that scale; the same attacks on the bundled network are in"
    yield "[the paper's table beside ours](rivals.md#their-successors).\n"
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
