"""The output of commands about a run, and the result files beside it."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from parsimon import runs
from parsimon.cli.output import note_images
from parsimon.cli.present import BLACK_BOX_ONLY, PICTURE, RESULTS, Headline, Output, Shown, write_examples
from parsimon.report.export import write_results
from parsimon.report.page import refresh
from parsimon.results.chance import NO_CHANCE
from parsimon.results.headline import advice, headline
from parsimon.results.result import Comparison, Result
from parsimon.results.summary import Summary
from parsimon.results.table import write_tables
from parsimon.runs.config import DEFAULTS


def shown(comparison: Comparison, folder: Path) -> Shown:
    """Return the output about a run."""
    return Shown(
        folder,
        [Headline(headline(comparison), advice(comparison), comparison.warnings)],
        comparison.tables(),
        described(comparison, folder),
        {BLACK_BOX_ONLY if comparison.black_box and comparison.white_box else "": comparison.verdict},
        not comparison.finished,
    )


def finish(comparison: Comparison, folder: Path, output: Output) -> NoReturn:
    """Write the result files, print the verdict, and exit with the code for scripts."""
    note_images(runs.config_of(folder).images, len(comparison.first.labels), DEFAULTS.images)
    write_results(comparison.results, folder / RESULTS)
    written = [folder / RESULTS, *write_tables(comparison.tables(), folder)]
    if write_examples(comparison.results.values(), folder / PICTURE, runs.classes_of(folder)):
        written.append(folder / PICTURE)
    refresh(folder)
    shown(comparison, folder).leave(output, written)


def described(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """Return the results of a run as a JSON document."""
    first = next(iter(comparison.results.values()))
    white_box = comparison.white_box_verdict
    paired = comparison.paired() if len(comparison.tables()) > 1 else {}
    return {
        "run": str(folder),
        "finished": comparison.finished,
        "targeted": first.threat.targeted,
        "defence": list(first.defence) or None,
        "images": len(first.labels),
        "correct": int(first.clean.correct.sum()),
        "attacked": len(first.outcomes),
        "clean_accuracy": first.clean.accuracy,
        "robust_accuracy": comparison.verdict.as_dict(),
        "white_box_accuracy": None if white_box is None else white_box.as_dict(),
        **NO_CHANCE,
        **({} if comparison.chance is None else comparison.chance.as_dict()),
        "warnings": list(comparison.warnings),
        "attacks": [_attack(name, result) for name, result in comparison.results.items()],
        "paired": [{"against": name, **_finite(asdict(pair))} for name, pair in paired.items()],
    }


def _attack(name: str, result: Result) -> dict[str, Any]:
    summary = result.summary
    return {
        "name": name,
        "white_box": result.attack.white_box,
        "loss": result.threat.loss,
        "successes": summary.successes,
        "success_rate": summary.success_rate,
        "success_at_least": summary.success_at_least,
        "success_interval": summary.interval,
        "unfinished": summary.unfinished,
        "queries": summary.queries,
        "mean": summary.mean,
        "mean_interval": summary.mean_interval,
        "median": summary.median,
        "median_interval": summary.median_interval,
        "mean_of_all": None if result.attack.white_box else summary.mean_of_all,
        "uncharged": summary.uncharged,
        "outside": summary.outside,
        "out_of_range": summary.out_of_range,
        "gradients": summary.gradients,
        "radius": None if summary.radii is None else _radius(summary),
        "random": _random(summary),
        "detector": _detector(summary),
        "verified": None if result.verification is None else asdict(result.verification),
        "traffic": None if result.traffic is None else asdict(result.traffic),
    }


def _radius(summary: Summary) -> dict[str, Any]:
    """Return the radii of a label-only attack."""
    return {"images": summary.with_radius, "mean": summary.mean_radius, "median": summary.median_radius}


def _random(summary: Summary) -> dict[str, Any] | None:
    """Return the fresh draws on a random model, with the mean of their error rates."""
    if not summary.draws:
        return None
    mean, interval = summary.error_rate or (None, None)
    return {"draws": summary.draws, "error_rate": mean, "error_rate_interval": interval}


def _detector(summary: Summary) -> dict[str, Any] | None:
    """Return what a detector flagged."""
    if summary.flagged is None:
        return None
    first = median(summary.first_flags) if summary.first_flags else None
    return {"queries": summary.flagged, "attacks": len(summary.first_flags), "median_first_flag": first}


def _finite(facts: dict[str, Any]) -> dict[str, Any]:
    """Replace infinite numbers, which JSON lacks, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in facts.items()
    }
