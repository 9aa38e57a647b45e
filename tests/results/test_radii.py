"""The radii of label-only attacks: their mean and median, and how tables, rows and JSON show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import parsimon
from parsimon.cli.show import described
from parsimon.core.types import Outcome
from parsimon.results.result import Comparison
from parsimon.results.summary import Summary, summarise
from small_model import IMAGES, LABELS, linear


def summary(*radii: float | None, unfinished: int = 0) -> Summary:
    """Summarise images with these radii; the last ones are unfinished."""
    outcomes = [
        Outcome(
            number,
            False,
            9,
            "interrupted" if number >= len(radii) - unfinished else "budget",
            radii=() if radius is None else ((3, 2 * radius), (7, radius)),
        )
        for number, radius in enumerate(radii)
    ]
    return summarise(outcomes, 9, label_only=True)


@pytest.mark.parametrize(
    ("radii", "found", "mean", "median"),
    [
        ((0.1, 0.3, 0.2), 3, 0.2, 0.2),
        ((0.1, 0.3, None), 2, 0.2, 0.3),
        ((0.1, None, 0.3, 0.2), 3, 0.2, 0.25),
        ((0.1, None, None, 0.2), 2, 0.15, None),  # the median lies between 0.2 and infinity
        ((0.1, None, None), 1, 0.1, None),
        ((None, None), 0, None, None),
    ],
)
def test_the_mean_is_over_images_with_a_radius_and_the_median_over_all(
    radii: tuple[float | None, ...], found: int, mean: float | None, median: float | None
) -> None:
    result = summary(*radii)
    assert result.with_radius == found
    assert result.mean_radius == (None if mean is None else pytest.approx(mean))
    assert result.median_radius == (None if median is None else pytest.approx(median))


def test_neither_is_known_while_images_are_unfinished() -> None:
    result = summary(0.1, 0.2, 0.3, unfinished=1)
    assert (result.with_radius, result.mean_radius, result.median_radius) == (3, None, None)


def test_other_attacks_have_no_radii() -> None:
    result = summarise([Outcome(0, True, 3, "success")], 9)
    assert (result.with_radius, result.mean_radius, result.median_radius) == (None, None, None)


def compared(*attacks: str, until_budget: bool = False) -> Comparison:
    return parsimon.compare(linear, IMAGES, LABELS, 0.05, attacks, budget=30, until_budget=until_budget, progress=False)


@pytest.mark.parametrize("until_budget", [False, True])
def test_a_table_has_radii_if_an_attack_is_label_only(until_budget: bool) -> None:
    comparison = compared("square", "rays", until_budget=until_budget)
    table = comparison.table()
    assert table.headers[-2:] == ["median radius", "mean radius"]
    square, rays = table.groups[0]
    radii = [each.radius for each in comparison.results["RayS"].outcomes]
    known = [radius for radius in radii if radius is not None]
    middle = np.median([np.inf if radius is None else radius for radius in radii])
    assert [cell.text for cell in square[-2:]] == ["-", "-"]
    assert [cell.text for cell in rays[-2:]] == [f"{middle:.4f}", f"{np.mean(known):.4f}"]
    notes = " ".join(table.notes)
    assert f"Mean radius: over the images with a radius: RayS {len(known)} of {len(radii)}." in notes
    assert ("upper bound near eps" in notes) == (not until_budget)
    assert max(map(len, str(table).splitlines())) <= 80


def test_a_table_without_a_label_only_attack_says_nothing_of_radii() -> None:
    assert "radius" not in str(compared("square").table()).lower()


def test_rows_and_json_have_the_radii(tmp_path: Path) -> None:
    comparison = compared("square", "rays", until_budget=True)
    rays = comparison.results["RayS"]
    rows = [row for row in comparison.rows() if row["attack"] == "RayS" and row["attacked"]]
    assert [(row["radius"], row["extra"]) for row in rows] == [(each.radius, each.extra) for each in rays.outcomes]
    assert {row["radius"] for row in comparison.rows() if row["attack"] == "Square"} == {None}
    square, label_only = described(comparison, tmp_path)["attacks"]
    assert square["radius"] is None
    found = rays.summary
    expected = {"images": found.with_radius, "mean": found.mean_radius, "median": found.median_radius}
    assert label_only["radius"] == expected
    assert rays.radius[[each.index for each in rays.outcomes]].tolist() == list(found.radii or ())
