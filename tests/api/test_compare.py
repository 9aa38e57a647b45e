"""Several attacks on the same images: from Python and from the shell."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parsimon
from bundled_images import Bundled
from command import run
from parsimon import NES, PGD, Attack, Bandits, Comparison, InputError, ModelError, Parsimonious, Square, zoo
from parsimon.results.headline import headline
from small_model import IMAGES, LABELS, linear


def compare(*attacks: Attack | str, **settings: Any) -> Comparison:
    return parsimon.compare(linear, IMAGES, LABELS, 0.02, attacks, **{"budget": 30, **settings})


def test_each_result_is_that_of_the_attack_alone() -> None:
    comparison = compare(Parsimonious(), Bandits(), "square")
    assert list(comparison.results) == ["Parsimonious", "Bandits", "Square"]
    for name, attack in {"Parsimonious": Parsimonious(), "Bandits": Bandits(), "Square": Square()}.items():
        alone = parsimon.attack(linear, IMAGES, LABELS, 0.02, attack=attack, budget=30)
        assert comparison.results[name].outcomes == alone.outcomes
        assert comparison.results[name].counters == alone.counters


def test_each_attack_climbs_its_own_loss_unless_one_is_chosen() -> None:
    def losses(**settings: Any) -> list[str]:
        return [result.threat.loss for result in compare("nes", "square", **settings).results.values()]

    assert losses() == ["cross-entropy", "margin"]
    assert losses(targets="next") == ["cross-entropy", "cross-entropy"]
    assert losses(loss="margin") == ["margin", "margin"]


def test_the_images_are_classified_once_for_all() -> None:
    shown = 0

    def counting(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        nonlocal shown
        shown += len(images)
        return linear(images)

    comparison = parsimon.compare(counting, IMAGES, LABELS, 0.001, ["square", "signhunter"], budget=11)
    assert not any(result.success.any() for result in comparison.results.values())
    # Classified, and again to see that answers repeat; then each image by each attack.
    assert shown == 2 * len(IMAGES) + 2 * 11 * len(IMAGES)


@pytest.mark.parametrize(
    ("attacks", "rows"),
    [
        (["nes", "bandits:imagenet-0.05"], ["NES", "Bandits:imagenet-0.05"]),
        (["nes,strict=true", NES()], ["NES,strict=true", "NES"]),
        ([NES(), NES(samples=50)], ["NES", repr(NES(samples=50))]),
        ({"mine": "square", "theirs": Square(0.3)}, ["mine", "theirs"]),
        ({1: "square", 2: "square"}, ["1", "2"]),
    ],
)
def test_rows_are_named_by_what_was_asked_for(attacks: Any, rows: list[str]) -> None:
    assert list(parsimon.compare(linear, IMAGES, LABELS, 0.02, attacks, budget=3).results) == rows


def test_the_reference_is_nes_where_it_is_among_them_or_the_chosen_one() -> None:
    assert compare("square", "nes").relative_to == "NES"
    assert compare("square", "bandits").relative_to is None
    assert compare("square", "bandits", relative_to="square").relative_to == "Square"


@pytest.mark.parametrize(
    ("attacks", "settings", "sentence"),
    [
        ([], {}, "there is no attack to run"),
        (["nope"], {}, "there is no attack 'nope'. The attacks are parsimonious, thrift, bandits"),
        ({}, {}, "there is no attack to run"),
        (["square", "nes", "square"], {}, "'square' is given twice"),
        (Square(), {}, "attacks must be a list of attacks or names, or a mapping from row names to them; got Square("),
        ("nes", {}, "attacks must be a list of attacks or names, or a mapping from row names to them; got 'nes'"),
        ([7], {}, "must be an instance of parsimon.Attack or the name of one; got 7"),
        (["square"], {"relative_to": "nes"}, "relative_to must be one of Square; got 'nes'"),
    ],
)
def test_bad_choices_are_refused_before_anything_is_asked(attacks: Any, settings: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        parsimon.compare(linear, IMAGES, LABELS, 0.02, attacks, **settings)


def test_a_white_box_attack_on_a_model_without_gradients_is_refused_before_anything_is_asked() -> None:
    asked = 0

    def counting(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        nonlocal asked
        asked += 1
        return linear(images)

    with pytest.raises(ModelError, match="PGD is a white-box attack and needs gradients"):
        parsimon.compare(counting, IMAGES, LABELS, 0.02, ["parsimonious", "pgd"], budget=5)
    assert asked == 0


def test_the_white_box_line_comes_from_the_same_network(bundled: Bundled) -> None:
    by_name = parsimon.compare("robust", bundled.images, bundled.labels, 8 / 255, [PGD(), "square"], budget=30)
    module = zoo.module("robust")
    of_module = parsimon.attack(module, bundled.images, bundled.labels, 8 / 255, attack=PGD(), budget=30)
    pgd = by_name.results["PGD"]
    assert pgd.success.tolist() == of_module.success.tolist()
    assert pgd.summary.gradients > 0
    assert by_name.results["Square"].summary.gradients == 0
    assert [[row[0].text for row in group] for group in by_name.table().groups] == [["Square"], ["PGD"]]


# --- paired ---------------------------------------------------------------------------------------------------------


def test_the_first_attack_is_paired_with_each_of_the_others_but_the_white_box(bundled: Bundled) -> None:
    attacks = ("pgd", "square", "parsimonious", "random")
    comparison = parsimon.compare("robust", bundled.images, bundled.labels, 16 / 255, attacks, budget=30)
    pairs = comparison.paired()
    assert list(pairs) == ["Parsimonious", "RandomCorners"]
    square = comparison.results["Square"].success
    for name, pair in pairs.items():
        other = comparison.results[name].success
        assert (pair.only_a, pair.only_b) == ((square & ~other).sum(), (other & ~square).sum())
    table, paired = comparison.tables()
    assert paired.title.startswith("Square against the others")
    assert str(comparison) == f"{table}\n\n{paired}"


def test_one_attack_and_the_white_box_alone_are_not_paired() -> None:
    assert compare("square").paired() == {}
    assert len(compare("square").tables()) == 1
    assert Comparison({}).paired() == {}


def test_a_run_that_was_interrupted_is_not_paired_and_says_so() -> None:
    comparison = compare("square", "random")
    first, *others = comparison.results["Square"].outcomes
    left = replace(first, success=False, ended="interrupted", queries=1, point=None)
    cut = Comparison({**comparison.results, "Square": replace(comparison.results["Square"], outcomes=(left, *others))})
    (table,) = cut.tables()
    assert "Paired comparison: omitted until every image is finished." in table.notes
    with pytest.raises(InputError, match="image 0 is unfinished after 1 queries: resume the run"):
        cut.paired()


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_the_table_and_writes_it_with_every_image(tmp_path: Path) -> None:
    options = ["--images", "4", "--budget", "20", "--eps", "16/255", "--out", "out"]
    ran = run(tmp_path, "compare", "parsimonious", "square", "pgd", *options)
    assert ran.returncode == 0
    images, labels = zoo.images()
    attacks = ["parsimonious", "square", "pgd"]
    comparison = parsimon.compare("robust", images, labels, 16 / 255, attacks, budget=20, at_most=4)
    first, _, rest = "\n".join(line.rstrip() for line in ran.stdout.splitlines()).partition("\n\n")
    assert first.replace("\n", " ") == headline(comparison)
    assert rest.startswith(str(comparison))
    tables = comparison.tables()
    assert len(tables) == 2
    assert (tmp_path / "out" / "table.md").read_text() == "\n\n".join(each.markdown() for each in tables) + "\n"
    assert (tmp_path / "out" / "table.tex").read_text() == "\n\n".join(each.latex() for each in tables) + "\n"
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["attack"] for row in rows] == [name for name in ("Parsimonious", "Square", "PGD") for _ in range(4)]
    outcomes = [outcome for result in comparison.results.values() for outcome in result.outcomes]
    for row, outcome in zip(rows, outcomes, strict=True):
        for count in ("queries", "uncharged", "outside", "gradients"):
            assert int(row[count]) == getattr(outcome, count)
        assert (int(row["image"]), row["success"], row["ended"]) == (
            outcome.index,
            str(int(outcome.success)),
            outcome.ended,
        )


@pytest.mark.parametrize(("form", "first"), [("markdown", "eps 8/255"), ("latex", "% eps 8/255")])
def test_a_format_can_go_straight_into_a_paper(tmp_path: Path, form: str, first: str) -> None:
    options = ["--images", "2", "--budget", "5", "--format", form, "--out", "out"]
    ran = run(tmp_path, "compare", "random", "signhunter", *options)
    name = {"markdown": "table.md", "latex": "table.tex"}[form]
    assert ran.stdout.startswith(first)
    assert ran.stdout == (tmp_path / "out" / name).read_text()


def test_without_arguments_the_papers_attacks_are_compared(tmp_path: Path) -> None:
    ran = run(tmp_path, "compare", "--images", "2", "--budget", "4", "--eps", "1/255", "--out", "out")
    rows = [line.split()[0] for line in ran.stdout.splitlines() if re.search(r" \d+\.\d% ", line)]
    assert rows[1:6] == ["Parsimonious", "Bandits", "NES", "PGD", "Clean"]
    assert "Parsimonious against the others, on the same 2 images" in ran.stdout
    assert "on NES's" not in ran.stdout  # NES fooled no image


def test_an_unknown_attack_is_one_sentence_and_nothing_is_written(tmp_path: Path) -> None:
    ran = run(tmp_path, "compare", "parsimonius", "--out", "out")
    assert ran.returncode == 2
    assert "there is no attack 'parsimonius'" in " ".join(ran.stderr.split())
    assert not (tmp_path / "out").exists()


def test_earlier_tables_are_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "table.tex").write_text("mine")
    ran = run(tmp_path, "compare", "random", "--out", "out")
    assert ran.returncode == 2
    assert "already holds results" in ran.stderr
    assert (tmp_path / "out" / "table.tex").read_text() == "mine"


def test_help_teaches(tmp_path: Path) -> None:
    text = " ".join(run(tmp_path, "compare", "--help").stdout.split())
    first = ("--relative-to", "--format", "parsimonious, bandits, nes")
    for words in (*first, "`parsimon attacks`", "parsimon compare", "white-box"):
        assert words in text
