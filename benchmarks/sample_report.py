"""A made-up comparison to write reports of, and the browser to open them with; for tests and benchmarks."""

from __future__ import annotations

import shutil

import numpy as np

from parsimon import zoo
from parsimon.attacks import PGD, Parsimonious, Square
from parsimon.core.engine import Counters
from parsimon.core.grid import Grid
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, Corner, Image, Outcome, Picture, Point
from parsimon.results.result import CleanPredictions, Comparison, Result

BUDGET = 1000


def made(count: int) -> Comparison:
    """Make up a comparison of three attacks on the first bundled images. Each fools nine in ten of them."""
    all_images, all_labels = zoo.images()
    images, labels = all_images[:count], all_labels[:count].astype(np.intp)
    threat = Threat(8 / 255)
    clean = CleanPredictions(
        labels, np.ones(count, np.bool_), 10, np.random.default_rng(9).uniform(0.3, 1, count).round(6)
    )
    results: dict[str, Result] = {}
    for attack in (Parsimonious(), Square(), PGD()):
        random = np.random.default_rng(len(results))
        outcomes = tuple(
            _outcome(index, images[index], int(labels[index]), attack, threat, random) for index in range(count)
        )
        counters = Counters(sum(each.queries for each in outcomes), ended=count)
        results[type(attack).__name__] = Result(attack, threat, BUDGET, images, labels, clean, outcomes, counters)
    return Comparison(results)


def _outcome(
    index: int, image: Image, label: int, attack: Attack, threat: Threat, random: np.random.Generator
) -> Outcome:
    if random.random() < 0.1:
        return Outcome(index, False, BUDGET, "budget")
    queries = int(np.exp(random.uniform(0, np.log(BUDGET))))
    return Outcome(
        index,
        True,
        queries,
        "success",
        predicted=(label + 3) % 10,
        point=_point(image, attack, threat, random),
        confidence=round(random.uniform(0.2, 1), 6),
    )


def _point(image: Image, attack: Attack, threat: Threat, random: np.random.Generator) -> Point:
    channels, rows, columns = image.shape
    if isinstance(attack, Parsimonious):
        grid = Grid((channels, rows, columns), (rows, columns), 4)
        return Corner(grid, np.packbits(random.random(grid.count) < 0.5).tobytes())
    low, high = threat.bounds(image)
    if isinstance(attack, Square):  # stripes, as it begins
        pixels = np.where(random.random((channels, 1, columns)) < 0.5, low, high)
    else:  # anywhere in the ball: what compresses the worst
        pixels = low + (high - low) * random.random(image.shape, np.float32)
    return Picture(image.shape, pixels.astype(np.float32).tobytes())


def chromium() -> str | None:
    """The browser, by whatever name it is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
