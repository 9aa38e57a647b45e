"""Write the tables of docs/guides/choose.md: how wide intervals are, and how many images a paired comparison needs.

python docs/_make/interval_tables.py

The numbers are those of the tests that parsimon itself reports with: Wilson's interval, and McNemar's exact test.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from _shared import filled
from parsimon.results.statistics import wilson_interval

PAGE = Path(__file__).parents[1] / "guides" / "choose.md"

IMAGES = (50, 100, 200, 500, 1000, 5000)
ACCURACIES = (10, 30, 50)  # in %

DIFFERENCES = (2, 5, 10, 20)  # in points
CHANGED = (5, 10, 20, 30)  # images on which exactly one of two models is robust, in %
LEVEL = 0.05
POWER = 0.8
_STEP, _MOST = 10, 20_000  # images
_SEEN = 6  # steps that must reach the power: that of an exact test is not monotonic


def page() -> str:
    """Return the page with fresh tables between its markers."""
    tables = {"widths": widths, "images": images_needed}
    return filled(PAGE.read_text(encoding="utf-8"), "interval_tables.py", lambda name: tables[name]())


def widths() -> list[str]:
    """Return the width of the interval of a robust accuracy, in points, per number of images."""
    lines = [
        f"| sample | {' | '.join(f'accuracy {each} %' for each in ACCURACIES)} |",
        f"|--:|{'--:|' * len(ACCURACIES)}",
    ]
    for images in IMAGES:
        cells = [f"{width(accuracy, images):.1f}" for accuracy in ACCURACIES]
        lines.append(f"| {images:,} images | {' | '.join(cells)} |")
    return lines


def width(accuracy: int, images: int) -> float:
    """Return the distance between the ends of the 95 % interval, in points."""
    low, high = wilson_interval(accuracy * images // 100, images)
    return 100 * (high - low)


def images_needed() -> list[str]:
    """Return the images that a comparison of two models needs, per difference and share of changed images."""
    lines = [
        f"| difference | {' | '.join(f'{each} % changed' for each in CHANGED)} |",
        f"|--:|{'--:|' * len(CHANGED)}",
    ]
    for difference in DIFFERENCES:
        cells = [f"{needed(difference, changed):,}" if changed >= difference else "" for changed in CHANGED]
        lines.append(f"| {difference} points | {' | '.join(cells)} |")
    return lines


@cache
def needed(difference: int, changed: int) -> int:
    """Return the images, in tens, from which a true difference is significant with a probability of 80 %."""
    tens = range(_STEP, _MOST, _STEP)
    place = bisect_left(tens, POWER, key=lambda images: power(images, difference, changed))
    while any(power(images, difference, changed) < POWER for images in tens[place : place + _SEEN]):
        place += 1
    return tens[place]


def power(images: int, difference: int, changed: int) -> float:
    """Return the probability that McNemar's exact test finds a difference between two models significant.

    On `changed` per cent of the images exactly one of them is robust, and one is ahead by `difference` points.
    """
    counts = np.arange(images + 1)
    behind = (changed - difference) / (2 * changed)  # of the changed images, those on which the weaker one is robust
    most = most_behind(counts)
    significant = binom.cdf(most, counts, behind) + binom.cdf(most, counts, 1 - behind)
    return float((binom.pmf(counts, images, changed / 100) * significant).sum())


def most_behind(changed: NDArray[np.int_]) -> NDArray[np.float64]:
    """Return, per number of changed images, the largest count of one side at which the test is significant, or -1.

    Its p-value is twice the probability of at most that count under fair coins.
    """
    most: NDArray[np.float64] = binom.ppf(LEVEL / 2, changed, 0.5)
    return np.where(binom.cdf(most, changed, 0.5) <= LEVEL / 2, most, most - 1).clip(-1)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
