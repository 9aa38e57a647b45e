"""The page of a random model: a sentence in place of curves, and shares of draws in place of confidences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from parsimon.report.charts import success_chart
from parsimon.report.gallery import gallery_of
from parsimon.report.picture import caption
from parsimon.results.result import Comparison
from report_pages import small, written
from small_model import IMAGES, LABELS, linear


@pytest.fixture(scope="module")
def random() -> Comparison:
    rng = np.random.default_rng(0)

    def noisy(images: NDArray[np.float32]) -> NDArray[np.floating]:
        return linear(images) + rng.normal(0, 2, (len(images), 10))

    settings: Any = {"budget": 60, "stochastic": True, "draws": 20}
    return parsimon.compare(noisy, IMAGES, LABELS, 0.1, ["square", "random"], **settings)


def test_a_share_of_draws_is_not_called_a_confidence(random: Comparison) -> None:
    gallery, _ = gallery_of(random, [], 10**6)
    assert gallery["random"]
    assert not gallery_of(small(), [], 10**6)[0]["random"]
    for comparison, ending in ((random, "% of draws"), (small(), "%")):
        result = next(each for each in comparison.results.values() if each.success.any())
        outcome = next(each for each in result.outcomes if each.success)
        before, _, _ = caption(result, outcome, None)
        assert before.endswith(f"{100 * (result.clean.confidence_of(outcome.index) or 0):.0f}{ending}")


def test_a_reader_sees_a_sentence_in_place_of_curves(browser: Any, random: Comparison, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(written(tmp_path, {"drawn": random}).as_uri())
    curves = page.locator("#chosen .curves")
    assert curves.locator(".hint").inner_text() == success_chart({"drawn": random})["hint"].strip()
    for part in (".plot", ".legend", ".segments"):
        assert not curves.locator(part).is_visible()
    assert "the share of draws with it" in page.locator(".gallery .hint").inner_text()
    page.goto(written(tmp_path, {"drawn": random, "exact": small()}).as_uri())
    together = page.locator("#together .curves")
    assert together.locator(".plot").is_visible()
    assert "A random model has no curve" in together.locator(".hint").inner_text()
    page.select_option("#choose select", label="exact")
    assert page.locator("#chosen article:visible .plot").is_visible()
    assert "confidence" in page.locator("#chosen article:visible .gallery .hint").inner_text()
    page.close()
