"""The content of a page, as plain data: of one run, of several runs together, and of an evaluation."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parsimon.report.charts import accuracy_charts, radii_chart, radius_chart, success_chart
from parsimon.report.data import Data
from parsimon.report.headline import about_attacks, grid_top, headline, run_top
from parsimon.results.evaluation import Evaluation, EvaluationGrid
from parsimon.results.notes import evaluation_with_gradients
from parsimon.results.result import Comparison
from parsimon.results.table import Cell, Table
from parsimon.results.text import behind, radius_text


def run_content(name: str, comparison: Comparison, spec: Mapping[str, Any]) -> Data:
    """Return the content of one run, without its gallery and facts."""
    return {
        "name": name,
        "sentence": sentence_of(comparison, spec),
        **run_top(comparison),
        "tables": tables_of(comparison.tables()),
        "white_box": _white_box(comparison),
        "curves": success_chart({name: comparison}),
        "closest": radius_chart({name: comparison}),
    }


def cell_content(name: str, evaluation: Evaluation, comparison: Comparison, spec: Mapping[str, Any]) -> Data:
    """Return the content of a run that is part of an evaluation: its own table, and the evaluation's accuracy."""
    about = about_attacks(comparison, evaluation.attacks)
    if seen := evaluation_with_gradients({"": evaluation}):
        about = f"{about} {seen[0].upper()}{seen[1:]}."
    return {
        **run_content(name, comparison, spec),
        "headlines": [headline(evaluation.verdict(), about, defence=comparison.first.defence)],
        "tables": tables_of([evaluation.table()]),
    }


def comparison_of(evaluation: Evaluation) -> Comparison:
    """Return the attacks of an evaluation side by side."""
    before = 0 if evaluation.smaller is None else int(evaluation.smaller.settled.sum())
    return Comparison(evaluation.results, None, before)


def runs_overview(comparisons: Mapping[str, Comparison]) -> Data:
    """Return what several runs show together: a headline each, one table, one chart."""
    tops = {name: run_top(comparison) for name, comparison in comparisons.items()}
    banners = [f"{name}: {top['banner']}" for name, top in tops.items() if top["banner"]]
    return {
        "name": f"{len(comparisons)} runs",
        "sentence": "",
        "banner": " ".join(banners),
        "headlines": [{**top["headlines"][0], "name": name} for name, top in tops.items()],
        "warnings": [f"{name}: {warning}" for name, top in tops.items() for warning in top["warnings"]],
        "tables": tables_of([merged_table(comparisons)]),
        "white_box": [f"{attack}, {name}" for name, each in comparisons.items() for attack in _white_box(each)],
        "radii": None,
        "curves": [success_chart(comparisons)],
        "closest": radius_chart(comparisons),
        "facts": [],
    }


def merged_table(comparisons: Mapping[str, Comparison]) -> Table:
    """Return the tables of several runs as one: a row per attack and run, in the columns that all have."""
    tables = {name: comparison.table() for name, comparison in comparisons.items()}
    first = next(iter(tables.values()))
    headers = [header for header in first.headers if all(header in table.headers for table in tables.values())]
    groups = []
    for name, table in tables.items():
        places = [table.headers.index(header) for header in headers]
        for group in table.groups:
            rows = [[row[place] for place in places] for row in group]
            groups.append([[Cell(f"{row[0].text}, {name}"), *row[1:]] for row in rows])
    shared = [note for note in first.notes if all(note in table.notes for table in tables.values())]
    notes = [f"{name}: {table.title}. Robust accuracy: {comparisons[name].verdict}." for name, table in tables.items()]
    return Table("Attacks of all runs", headers, groups, [*notes, *shared])


def grid_overview(grid: EvaluationGrid, name: str, facts: Mapping[str, Any]) -> Data:
    """Return what an evaluation shows of all models and radii: headlines, table, charts."""
    cells = [(model, each) for model, row in grid.evaluations.items() for each in row]
    warnings = [
        f"{model}, {radius_text(each.effective_eps)}: {warning}" for model, each in cells for warning in each.warnings
    ]
    return {
        "name": name,
        "sentence": _grid_sentence(grid, facts.get("spec", {})),
        **grid_top(grid),
        "warnings": warnings,
        "tables": tables_of([grid.table()]),
        "white_box": [],
        "radii": radii_chart(grid),
        "curves": accuracy_charts(grid),
        "closest": None,
        "facts": facts_shown(facts),
    }


def _grid_sentence(grid: EvaluationGrid, spec: Mapping[str, Any]) -> str:
    first = grid.any_evaluation
    source = f" (data: {spec['data']})" if spec.get("data") else ""
    models = f"{', '.join(grid.models)}{behind(first.any_result.defence)}"
    *smaller, largest = map(radius_text, grid.effective_radii)
    radii = " and ".join(filter(None, [", ".join(smaller), largest]))
    limits = " or ".join(f"{budget:,}" for budget in first.budgets)
    return (
        f"The attacks {', '.join(first.attacks)} tried to fool {models} on {len(first.correct):,} "
        f"images{source}, with at most {limits} queries per image and attack, changing no pixel by more than {radii}. "
        "Each attack got the images that no earlier one fooled."
    )


def sentence_of(comparison: Comparison, spec: Mapping[str, Any]) -> str:
    """Return a sentence that says what was measured."""
    first, count = comparison.first, len(comparison.results)
    attacks = f"Each of {count} attacks" if count > 1 else "An attack"
    model = f"the model {spec['model']}" if spec.get("model") else "the model"
    model = f"{model}{behind(first.defence)}"
    source = f" (data: {spec['data']})" if spec.get("data") else ""
    goal = f"make {model} predict a chosen other class for" if first.threat.targeted else f"fool {model} on"
    return (
        f"{attacks} tried to {goal} {len(first.outcomes):,} images that it classifies correctly{source}, with at most "
        f"{first.budget:,} queries per image, changing no pixel by more than {radius_text(first.threat.effective_eps)}."
    )


def tables_of(tables: Sequence[Table]) -> list[Data]:
    """Return the table of results and, if there is one, the table of paired attacks."""
    return [
        {
            "heading": heading,
            "title": table.title,
            "headers": list(table.headers),
            "groups": [[[cell._asdict() for cell in row] for row in group] for group in table.groups],
            "notes": list(table.notes),
            "markdown": table.markdown(),
            "latex": table.latex(),
        }
        for heading, table in zip(("Results", "Paired"), tables, strict=False)
    ]


def _white_box(comparison: Comparison) -> list[str]:
    return [name for name, result in comparison.results.items() if result.attack.white_box]


def facts_shown(facts: Mapping[str, Any]) -> list[Data]:
    """Return spec and environment as lines of text."""
    return [
        {"title": title, "rows": list(_flat(facts[key]))}
        for key, title in (("spec", "Spec"), ("environment", "Environment"))
        if facts.get(key)
    ]


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each fact as name and text; names of nested facts are joined."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key} ")
        elif isinstance(value, list | tuple):
            texts = [str(each) for each in value]
            yield f"{prefix}{key}", shlex.join(texts) if key == "command" else ", ".join(texts)
        elif value is not None:
            yield f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else str(value)
