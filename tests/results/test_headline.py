"""The headline says what was found, on what it rests, and what it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from parsimon import PGD, Comparison, Result, Square, Threat
from parsimon.cli.show import described
from parsimon.core.engine import Counters
from parsimon.core.types import Outcome
from parsimon.report.headline import run_headline
from parsimon.results.diff import Standing
from parsimon.results.headline import advice, headline
from parsimon.results.result import CleanPredictions
from parsimon.results.statistics import wilson_interval
from parsimon.results.verdict import product_interval


def result(fooled: int, attacked: int, correct: int, images: int, *, unfinished: int = 0) -> Result:
    pixels, labels = np.zeros((images, 3, 1, 1), np.float32), np.zeros(images, np.intp)
    clean = CleanPredictions(labels, np.arange(images) < correct, 10, np.ones(images))
    outcomes = [
        Outcome(index, index < fooled, 5, "success" if index < fooled else "budget") for index in range(attacked)
    ]
    outcomes[attacked - unfinished :] = [
        Outcome(index, False, 3, "interrupted") for index in range(attacked - unfinished, attacked)
    ]
    return Result(Square(), Threat(8 / 255), 2000, pixels, labels, clean, tuple(outcomes), Counters())


def percent(interval: tuple[float, float]) -> str:
    return f"({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"


def test_a_measured_accuracy_has_its_interval() -> None:
    said = headline(Comparison({"Square": result(30, 80, 80, 100)}))
    interval = percent(wilson_interval(50, 100))
    about = "100 images, Square, at most 2,000 queries per image"
    assert said == f"Robust accuracy 50.0% {interval} at eps 8/255: {about}"


def test_an_estimate_says_from_how_many_images() -> None:
    said = headline(Comparison({"A": result(10, 20, 512, 640), "B": result(5, 20, 512, 640)}))
    about = "estimate from 20 of 512 correctly classified images, A, B, at most 2,000 queries per image"
    assert said == f"Robust accuracy about 40.0% {percent(product_interval(10, 20, 512, 640))} at eps 8/255: {about}"


def test_an_unfinished_run_has_an_upper_bound_only() -> None:
    said = headline(Comparison({"Square": result(10, 80, 80, 100, unfinished=3)}))
    assert said.startswith("Robust accuracy at most 70.0% so far at eps 8/255: 100 images, Square")


def test_a_targeted_run_counts_the_images_that_reached_their_target() -> None:
    def targeted(**counts: int) -> Comparison:
        return Comparison({"A": replace(result(12, 40, 80, 100, **counts), threat=Threat(8 / 255, targeted=True))})

    interval = percent(wilson_interval(12, 40))
    assert headline(targeted()).startswith(f"Target reached on 12 of 40 images, 30.0% {interval}, at eps 8/255: 40 im")
    assert headline(targeted(unfinished=2)).startswith("Target reached on at least 12 of 40 images so far at eps")
    assert advice(targeted()) is None


def test_a_defence_is_named_and_nothing_else_changes() -> None:
    bare = result(30, 80, 80, 100)
    defended = replace(bare, defence=("jpeg,quality=50", "round"))
    before, after = Comparison({"A": bare, "B": bare}), Comparison({"A": defended, "B": defended})
    assert " behind jpeg,quality=50 + round at eps 8/255: " in headline(after)
    assert headline(after).replace(" behind jpeg,quality=50 + round", "") == headline(before)
    assert defended.headline() == bare.headline().replace(" at eps", " behind jpeg,quality=50 + round at eps")
    for plain, named in zip(before.tables(), after.tables(), strict=True):
        assert named.title == f"Behind jpeg,quality=50 + round: {plain.title}"
        assert (named.headers, named.groups, named.notes) == (plain.headers, plain.groups, plain.notes)
        for form in ("markdown", "latex", "html", "__str__"):
            assert "Behind jpeg,quality=50 + round:" in getattr(named, form)()
            assert "ehind" not in getattr(plain, form)()
    assert {row["defence"] for row in defended.rows()} == {"jpeg,quality=50 + round"}
    assert not any("defence" in row for row in bare.rows())


def test_a_white_box_attack_has_no_part_in_the_verdict_and_stands_apart() -> None:
    black_box, white_box = result(10, 80, 80, 100), replace(result(70, 80, 80, 100), attack=PGD())
    both, alone = Comparison({"Square": black_box, "PGD": white_box}), Comparison({"Square": black_box})
    assert both.verdict == alone.verdict
    assert both.verdict.value == 0.7
    assert headline(both) == f"{headline(alone)}; with PGD, which sees gradients: 10.0%"
    assert advice(both) == advice(alone)
    assert "Clean accuracy: 80.0%. Robust accuracy: 70.0% under Square." in both.table().notes
    assert "With PGD, which sees gradients: 10.0%." in both.table().notes
    top = run_headline(both)
    assert "70.0" in top["value"]
    assert " under Square, with at most" in top["about"]
    assert top["about"].endswith(" With PGD, which sees gradients: 10.0%.")
    document = described(both, Path("run"))
    assert document["robust_accuracy"] == alone.verdict.as_dict()
    assert document["white_box_accuracy"]["value"] == 0.1
    assert described(alone, Path("run"))["white_box_accuracy"] is None
    assert Standing.of(both).robust.sum() == 70


def test_a_white_box_attack_alone_is_the_verdict() -> None:
    alone = Comparison({"PGD": replace(result(70, 80, 80, 100), attack=PGD())})
    assert alone.verdict.value == 0.1
    assert headline(alone).endswith("100 images, PGD, at most 2,000 queries per image")


def test_an_unfinished_white_box_attack_leaves_the_verdict_of_the_others() -> None:
    white_box = replace(result(30, 80, 80, 100, unfinished=5), attack=PGD())
    both = Comparison({"Square": result(10, 80, 80, 100), "PGD": white_box})
    assert both.verdict.kind == "measured"
    assert headline(both).endswith("; with PGD, which sees gradients: at most 50.0% so far")


def test_one_attack_is_advised_to_be_an_evaluation() -> None:
    one = result(30, 80, 80, 100)
    assert "one attack only" in (advice(Comparison({"A": one})) or "")
    assert advice(Comparison({"A": one, "B": one})) is None
