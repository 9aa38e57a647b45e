"""The report: one HTML file that shows whole runs and works without a network.

A page is a fixed template, style and script with one block of data. Everything that comes from a run is in that block.
The script inserts it as text, so that a class named like a tag stays a name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from parsimon import runs
from parsimon.errors import InputError
from parsimon.report.content import (
    cell_content,
    comparison_of,
    facts_shown,
    grid_overview,
    run_content,
    runs_overview,
)
from parsimon.report.data import Data
from parsimon.report.gallery import gallery_of
from parsimon.report.picture import class_names
from parsimon.results.evaluation import EvaluationGrid
from parsimon.results.result import Comparison
from parsimon.results.text import radius_text
from parsimon.runs.evaluation import cell_folder, evaluation_config, is_evaluation, load_evaluation

PAGE = "report.html"

_PICTURES = 24_000_000  # characters of pictures in one file; with many more, browsers take seconds to open it
_SCRIPTS = ("parts.js", "headline.js", "chart.js", "plot.js", "radii.js", "closest.js", "gallery.js", "page.js")
_SECTIONS = ("table", "headline", "radii", "curves", "closest", "gallery", "counting")  # some are on the live page, too


def write_page(
    comparisons: Mapping[str, Comparison], path: Path, *, facts: Mapping[str, Mapping[str, Any]] = {}
) -> None:
    """Write a self-contained HTML report. The same comparisons and facts always give the same bytes.

    Several comparisons share one table and one chart; the reader chooses which of them is shown below.

    Args:
        comparisons: Comparisons by their names on the page, usually the folders of their runs.
        path: Where to write it.
        facts: Facts of each comparison, by the same names. Optional keys are `spec` and `environment`, each a mapping,
            and `classes`, the names of the classes by number.
    """
    if not comparisons or not all(comparison.results for comparison in comparisons.values()):
        raise InputError("a report needs at least one run, and each at least one attack; got none")
    if unknown := sorted(set(facts) - set(comparisons)):
        raise InputError(f"facts must be of the runs {', '.join(comparisons)}; got some of {unknown[0]!r}")
    shown = []
    for name, comparison in comparisons.items():
        known = facts.get(name, {})
        content = {**run_content(name, comparison, known.get("spec", {})), "facts": facts_shown(known)}
        shown.append((comparison, content, known))
    overview = runs_overview(comparisons) if len(comparisons) > 1 else None
    _write(path, ", ".join(comparisons), overview, shown)


def write_evaluation_page(
    grid: EvaluationGrid, path: Path, *, name: str = "Evaluation", facts: Mapping[str, Any] = {}
) -> None:
    """Write a self-contained HTML report of an evaluation: all models and radii, then each run.

    Args:
        grid: The evaluation.
        path: Where to write it.
        name: Its name on the page, usually its folder.
        facts: Facts about it, with the optional keys of `write_page`.
    """
    shown = []
    for model, evaluations in grid.evaluations.items():
        for each in evaluations:
            if each.results:
                comparison, title = comparison_of(each), f"{model}, {radius_text(each.effective_eps)}"
                content = cell_content(title, each, comparison, {**facts.get("spec", {}), "model": model})
                shown.append((comparison, {**content, "facts": []}, facts))
    _write(path, name, grid_overview(grid, name, facts), shown)


def write_report(folders: Sequence[Path], path: Path) -> None:
    """Write the report of the evaluation or of the runs in these folders."""
    evaluations = [folder for folder in folders if is_evaluation(folder)]
    if evaluations and len(folders) > 1:
        raise InputError(f"a report is about one evaluation or about runs; {evaluations[0]} is one of several folders")
    if evaluations:
        (folder,) = folders
        write_evaluation_page(load_evaluation(folder), path, name=str(folder), facts=evaluation_facts(folder))
    else:
        comparisons = {str(folder): runs.load(folder) for folder in folders}
        write_page(comparisons, path, facts={str(folder): runs.facts_of(folder) for folder in folders})


def evaluation_facts(folder: Path) -> dict[str, Any]:
    """Return the settings of the evaluation in a folder, with environment and class names of its first run."""
    config = evaluation_config(folder)
    first, *_ = config.cells(config.models[0])
    return {**runs.facts_of(cell_folder(folder, config, first)), "spec": config.settings()}


def refresh(folder: Path) -> None:
    """Write the report in a folder again, if there is one: it may be about a part of the run."""
    if (folder / PAGE).exists():
        write_report([folder], folder / PAGE)


def _write(
    path: Path, title: str, overview: Data | None, shown: Sequence[tuple[Comparison, Data, Mapping[str, Any]]]
) -> None:
    """Add the galleries and write the page."""
    space, contents = _PICTURES, []
    for comparison, content, facts in shown:
        names = class_names(facts.get("classes"), comparison.first.clean)
        gallery, space = gallery_of(comparison, names or (), space)
        contents.append({**content, "gallery": gallery})
    data = {"title": title, "overview": overview, "runs": contents}
    scripts = [page_file(name) for name in _SCRIPTS]
    page, _ = assemble(page_file("page.html"), [page_file("page.css")], scripts, data, "img-src data:")
    path.write_text(page, encoding="utf-8", newline="\n")


def page_file(name: str, package: str = "parsimon.report") -> str:
    """Return the text of a file in a package's folder `page`."""
    return (files(package) / "page" / name).read_text(encoding="utf-8")


def assemble(template: str, styles: Sequence[str], scripts: Sequence[str], data: Any, sources: str) -> tuple[str, str]:
    """Return a page, and its content security policy.

    The policy allows only the given sources, such as `img-src data:`, and exactly this style and script.
    """
    style, script = "".join(styles), "".join(scripts)
    policy = (
        f"default-src 'none'; {sources}; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = {name: page_file(f"{name}.html").rstrip() for name in _SECTIONS}
    parts = {**sections, "policy": policy, "style": style, "script": script, "data": _script_json(data)}
    # One pass, so that a placeholder in the data is never filled in.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template), policy


def _script_json(data: Any) -> str:
    """Return JSON without any character that could end its script element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # escapes everything beyond ASCII
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
