"""The top of a page, as plain data: the robust accuracy, whether the run is finished, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parsimon.report.data import Data
from parsimon.results.evaluation import EvaluationGrid
from parsimon.results.headline import advice
from parsimon.results.notes import evaluation_with_gradients, with_gradients
from parsimon.results.result import Comparison
from parsimon.results.text import behind, percent_range, radius_text
from parsimon.results.verdict import Verdict


def headline(
    verdict: Verdict, about: str, name: str = "", *, targeted: bool = False, defence: Sequence[str] = ()
) -> Data:
    """Return a robust accuracy as the page shows it, with a line on what it is about."""
    what = f"{'Accuracy under targeted attack' if targeted else 'Robust accuracy'}{behind(defence)}"
    interval = None if verdict.interval is None else percent_range(verdict.interval)
    shown = {"name": name, "what": what, "value": _value(verdict), "interval": interval}
    return {**shown, "kind": _kind(verdict), "about": about}


def _value(verdict: Verdict) -> str:
    """Return the number as text: exact, about, or at most."""
    sign = {"measured": "", "estimate": "about ", "at_most": "\N{LESS-THAN OR EQUAL TO}\N{NO-BREAK SPACE}"}
    return f"{sign[verdict.kind]}{100 * verdict.value:.1f}\N{NO-BREAK SPACE}%"


def _kind(verdict: Verdict) -> str:
    """Return how the number was obtained."""
    if verdict.kind == "measured":
        return f"Measured on {verdict.images:,} images, with its 95 % interval."
    if verdict.kind == "estimate":
        return (
            f"Estimate from {verdict.attacked:,} attacked images, with its 95 % interval: the other correctly "
            "classified ones are assumed to behave like them."
        )
    return "At most so far: images are unfinished, and the number can only fall."


def run_top(comparison: Comparison) -> Data:
    """Return banner, headline and warnings of a run."""
    return {
        "banner": unfinished_banner(comparison),
        "headlines": [run_headline(comparison)],
        "warnings": list(comparison.warnings),
    }


def run_headline(comparison: Comparison) -> Data:
    """Return the robust accuracy of a run, or its accuracy under targeted attack."""
    about, targeted = about_attacks(comparison, comparison.counted), comparison.first.threat.targeted
    if other := with_gradients(comparison):
        about = f"{about} {other[0].upper()}{other[1:]}."
    shown = headline(comparison.verdict, about, targeted=targeted, defence=comparison.first.defence)
    hint = advice(comparison)
    return {**shown, "kind": f"{shown['kind']} {hint}." if hint else shown["kind"]}


def about_attacks(comparison: Comparison, counted: Iterable[str]) -> str:
    """Return what the robust accuracy of a run is about; `counted` are the attacks that it rests on."""
    first = comparison.first
    stay = "are correct and do not reach their target" if first.threat.targeted else "stay correctly classified"
    attacks, radius = ", ".join(counted), radius_text(first.threat.effective_eps)
    return (
        f"of images {stay} at radius {radius} under {attacks}, with at most {first.budget:,} queries per image and "
        f"attack; {100 * first.clean.accuracy:.1f} % are classified correctly without an attack."
    )


def unfinished_banner(comparison: Comparison) -> str:
    """Return the banner of an unfinished run; an empty text if it is finished."""
    outcomes = [outcome for result in comparison.results.values() for outcome in result.outcomes]
    left = {outcome.index for outcome in outcomes if outcome.ended == "interrupted"}
    images = len({outcome.index for outcome in outcomes})
    return f"Unfinished: {images - len(left):,} of {images:,} images are done. Numbers are bounds." if left else ""


def grid_top(grid: EvaluationGrid) -> Data:
    """Return banner and headlines of an evaluation: one per model, at its largest radius."""
    cells = len(grid.models) * len(grid.radii)
    done = f"{cells - grid.unfinished:,} of {cells:,} evaluations are done"
    return {
        "banner": f"Unfinished: {done}. Numbers are bounds." if grid.unfinished else "",
        "headlines": [
            headline(
                evaluations[-1].verdict(),
                _about_model(grid, model),
                model,
                defence=evaluations[-1].any_result.defence,
            )
            for model, evaluations in grid.evaluations.items()
        ],
    }


def _about_model(grid: EvaluationGrid, model: str) -> str:
    *smaller, last = grid.evaluations[model]
    others = [f"{_value(each.verdict())} at {radius_text(each.effective_eps)}" for each in smaller]
    clean = f"{100 * last.clean_accuracy:.1f}\N{NO-BREAK SPACE}% without an attack"
    also = ", ".join([*reversed(others), clean])
    if seen := evaluation_with_gradients({"": last}):
        also = f"{also}; {seen}"
    return f"of images stay correctly classified at radius {radius_text(last.effective_eps)}; {also}."
