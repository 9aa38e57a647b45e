"""Results at a prompt, in a notebook and in pandas."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import parsimon
from parsimon import MissingExtraError
from small_model import IMAGES, LABELS, WEIGHTS, linear

WRONG = np.where(np.arange(len(LABELS)) == 2, (LABELS + 1) % 10, LABELS)  # image 2 is misclassified
RESULT = parsimon.attack(linear, IMAGES, WRONG, 0.05, budget=60)
COMPARISON = parsimon.compare(linear, IMAGES, WRONG, 0.05, ["square", "nes"], budget=60)
EVALUATION = parsimon.evaluate(linear, IMAGES, WRONG, 0.05, budget=60)
GRID = parsimon.evaluate({"a": linear, "<b>": lambda images: linear(images)}, IMAGES, WRONG, [0.02, 0.05], budget=60)
ALL: dict[str, Any] = {"result": RESULT, "comparison": COMPARISON, "evaluation": EVALUATION, "grid": GRID}


def test_some_images_are_fooled_and_some_are_not() -> None:
    assert 0 < RESULT.success.sum() < RESULT.attacked.sum() == 5


@pytest.mark.parametrize("shown", ALL.values(), ids=ALL)
def test_a_repr_is_one_line_that_says_what_came_out(shown: Any) -> None:
    text = repr(shown)
    assert text.startswith(f"<{type(shown).__name__}: ")
    assert "\n" not in text
    assert len(text) < 500
    for words in ("6 images", "obust accuracy", "at most 60 queries per image", "eps 12.75/255"):
        assert words in text


def test_the_repr_of_a_result_says_how_many_images_were_fooled() -> None:
    assert f"{RESULT.success.sum() / 5:.1%} of 5 attacked images fooled" in repr(RESULT)
    outcomes = (*RESULT.outcomes[:-1], replace(RESULT.outcomes[-1], success=False, ended="interrupted", point=None))
    assert "at least" in repr(replace(RESULT, outcomes=outcomes))


@pytest.mark.parametrize("shown", ALL.values(), ids=ALL)
def test_a_notebook_shows_the_headline_then_the_tables(shown: Any) -> None:
    page = shown._repr_html_()
    assert page.startswith("<p><b>")
    assert page.index("obust accuracy") < page.index("<table>")
    assert page.count("<table>") == len(shown.tables())
    assert "<b>:" not in page  # the name of a model is escaped


def test_a_frame_of_a_result_has_one_row_per_image() -> None:
    frame = RESULT.to_frame()
    assert frame["image"].tolist() == list(range(6))
    assert frame["label"].tolist() == WRONG.tolist()
    assert frame["clean_predicted"].tolist() == LABELS.tolist()
    for name in ("attacked", "success", "queries"):
        assert frame[name].tolist() == getattr(RESULT, name).tolist()
    adversarial = RESULT.adversarial.reshape(6, -1) @ WEIGHTS
    fooled = frame[frame["success"]]
    assert fooled["predicted"].tolist() == adversarial.argmax(axis=1)[RESULT.success].tolist()
    assert frame["predicted"].isna().tolist() == (~RESULT.success).tolist()
    assert fooled["verified"].all()
    assert frame["ended"].isna().tolist() == (~RESULT.attacked).tolist()


def test_a_frame_of_a_comparison_names_the_attack() -> None:
    frame = COMPARISON.to_frame()
    assert frame.groupby("attack")["success"].sum().to_dict() == {
        name: int(result.success.sum()) for name, result in COMPARISON.results.items()
    }


def test_a_frame_of_an_evaluation_says_what_fooled_each_image() -> None:
    frame = EVALUATION.to_frame()
    assert frame["robust"].mean() == EVALUATION.robust_accuracy
    assert frame["queries"].tolist() == EVALUATION.queries.tolist()
    for image, name, after in zip(frame["image"], frame["fooled_by"], frame["fooled_after"], strict=True):
        if name in EVALUATION.results:
            result = EVALUATION.results[name]
            assert (result.success[image], result.queries[image]) == (True, after)
        else:
            assert EVALUATION.robust[image] or not EVALUATION.correct[image]


def test_a_frame_of_a_grid_has_every_model_and_radius() -> None:
    frame = GRID.to_frame()
    assert len(frame) == 2 * 2 * 6
    for (model, eps), rows in frame.groupby(["model", "eps"]):
        assert rows["robust"].mean() == GRID[model, eps].robust_accuracy


def test_pandas_is_imported_for_frames_only(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, parsimon.api; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'parsimon\[pandas\]'"):
        RESULT.to_frame()
