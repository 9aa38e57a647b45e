"""The report as a file: complete, self-contained, deaf to hostile names."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import parsimon
from parsimon.core.threat import Scores
from parsimon.core.types import Image, Outcome
from parsimon.errors import InputError
from parsimon.report import page as page_module
from parsimon.report.picture import class_names
from parsimon.results.result import CleanPredictions, Comparison
from parsimon.results.statistics import curve, wilson_interval
from report_pages import CLASSES, FACTS, HOSTILE, hostile, small, written
from sample_report import made
from small_model import IMAGES, LABELS


@pytest.fixture(scope="module")
def large() -> Comparison:
    return made(500)


def data_of(path: Path) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert len(found) == 1
    data: dict[str, Any] = json.loads(found[0])
    return data


def pixels(data: str) -> Image:
    levels = np.atleast_3d(np.asarray(Pillow.open(BytesIO(b64decode(data))), np.float32))
    return levels.transpose(2, 0, 1) / np.float32(255)


class Tags(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_nothing_is_fetched_from_anywhere(tmp_path: Path) -> None:
    text = written(tmp_path, {"run": small()}, facts={"run": FACTS}).read_text()
    tags = Tags(text).found
    assert {tag for tag, _ in tags}.isdisjoint({"link", "iframe", "object", "embed", "base"})
    links = [value for _, attributes in tags for name, value in attributes.items() if name in ("src", "href", "srcset")]
    assert links == ["#runs"]
    assert not re.search(r"https?:|//\w+\.\w|url\(|@import|fetch\(|XMLHttpRequest|WebSocket|\bimport\b", text)
    policy = next(attributes["content"] for _, attributes in tags if attributes.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy


def test_a_large_comparison_stays_below_ten_megabytes_with_all_its_pictures(large: Comparison, tmp_path: Path) -> None:
    path = written(tmp_path, {"run": large})
    assert path.stat().st_size < 10_000_000
    gallery = data_of(path)["runs"][0]["gallery"]
    assert len(gallery["originals"]) == 500
    assert len(gallery["cards"]) == 1500
    assert all(bool(card.get("adversarial")) == (card["state"] == "fooled") for card in gallery["cards"])


def test_the_tables_are_those_that_are_printed(tmp_path: Path) -> None:
    tables = data_of(written(tmp_path, {"run": small()}))["runs"][0]["tables"]
    assert [shown["heading"] for shown in tables] == ["Results", "Paired"]
    for shown, table in zip(tables, small().tables(), strict=True):
        assert shown["headers"] == list(table.headers)
        assert shown["groups"] == [
            [[{"text": c.text, "best": c.best, "interval": c.interval and list(c.interval)} for c in row] for row in g]
            for g in table.groups
        ]
        assert (shown["title"], shown["notes"]) == (table.title, list(table.notes))
        assert (shown["markdown"], shown["latex"]) == (table.markdown(), table.latex())


def test_one_attack_alone_has_one_table(tmp_path: Path) -> None:
    alone = Comparison({"Square": small().results["Square"]})
    assert len(data_of(written(tmp_path, {"run": alone}))["runs"][0]["tables"]) == 1


def test_curves_rise_where_outcomes_say_with_wilsons_interval(tmp_path: Path) -> None:
    shown = data_of(written(tmp_path, {"run": small()}))["runs"][0]["curves"]
    assert shown["budget"] == 40
    assert [line["name"] for line in shown["lines"]] == list(small().results)
    for line, result in zip(shown["lines"], small().results.values(), strict=True):
        found = curve(result.outcomes, 40)
        counts = [0, *found.fooled.tolist()]
        assert line["queries"] == [0, *found.queries.tolist()]
        assert line["rates"] == pytest.approx([count / len(IMAGES) for count in counts], abs=1e-5)
        assert (line["known"], line["note"]) == (40, "")
        ends = [wilson_interval(count, len(IMAGES)) for count in counts]
        assert np.allclose(list(zip(line["low"], line["high"], strict=True)), ends, atol=1e-5)
    assert len({line["colour"] for line in shown["lines"]}) == 3


def test_a_white_box_attack_is_a_dashed_line_without_a_colour(large: Comparison, tmp_path: Path) -> None:
    lines = data_of(written(tmp_path, {"run": large}))["runs"][0]["curves"]["lines"]
    assert [line["white_box"] for line in lines] == [False, False, True]
    assert [bool(line["dashes"]) for line in lines] == [False, False, True]
    assert lines[2]["colour"] is None


def test_every_outcome_is_in_the_gallery_with_its_pictures(tmp_path: Path) -> None:
    gallery = data_of(written(tmp_path, {"run": small()}))["runs"][0]["gallery"]
    results = list(small().results.values())
    assert sorted(map(int, gallery["originals"])) == list(range(len(IMAGES)))
    assert [(card["number"], card["attack"]) for card in gallery["cards"]] == [
        (number, attack) for number in range(len(IMAGES)) for attack in range(len(results))
    ]
    for card in gallery["cards"]:
        number, result = card["number"], results[card["attack"]]
        original, outcome = IMAGES[number], result.outcomes[number]
        assert np.abs(pixels(gallery["originals"][str(number)]) - original).max() < 1e-6  # they are 8-bit images
        assert card["label"] == LABELS[number]
        assert card["before"] == pytest.approx(result.clean.confidence_of(number), abs=5e-4)
        assert (card["state"], card["queries"]) == ("fooled" if outcome.success else "robust", outcome.queries)
        assert card["predicted"] == outcome.predicted
        assert card["after"] == (outcome.confidence and pytest.approx(outcome.confidence, abs=5e-4))
        assert ("adversarial" in card) == ("perturbation" in card) == outcome.success
        if outcome.success:
            adversarial = result.draw(outcome)
            assert np.abs(pixels(card["adversarial"]) - adversarial).max() <= 0.5 / 255 + 1e-6
            stretched = 0.5 + (adversarial - original) / (2 * 0.05)
            assert np.abs(pixels(card["perturbation"]) - stretched).max() <= 0.5 / 32 + 1 / 255
    assert {card["state"] for card in gallery["cards"]} == {"fooled", "robust"}


def cut_short(comparison: Comparison, queries: dict[str, int]) -> Comparison:
    """Return a comparison whose named attacks stopped on image 0 after so many queries."""
    results = {}
    for name, result in comparison.results.items():
        outcomes = list(result.outcomes)
        if name in queries:
            outcomes[0] = Outcome(0, False, queries[name], "interrupted")
        results[name] = replace(result, outcomes=tuple(outcomes))
    return Comparison(results)


def test_an_unfinished_run_has_a_banner_and_bounds_and_says_which_images_are_unfinished(tmp_path: Path) -> None:
    cut = cut_short(small(), {"Square": 7})
    run = data_of(written(tmp_path, {"run": cut}))["runs"][0]
    assert run["banner"] == "Unfinished: 5 of 6 images are done. Numbers are bounds."
    (headline,) = run["headlines"]
    robust = len(IMAGES) - sum(any(r.outcomes[i].success for r in cut.results.values()) for i in range(len(IMAGES)))
    assert headline["value"] == f"\N{LESS-THAN OR EQUAL TO}\N{NO-BREAK SPACE}{100 * robust / 6:.1f}\N{NO-BREAK SPACE}%"
    assert headline["interval"] is None
    assert headline["kind"].startswith("At most so far")
    states = {(card["attack"], card["number"]): card["state"] for card in run["gallery"]["cards"]}
    assert [key for key, state in states.items() if state == "unfinished"] == [(0, 0)]


def test_the_curve_of_an_unfinished_attack_ends_where_it_is_known_and_has_no_interval(tmp_path: Path) -> None:
    cut = cut_short(small(), {"Square": 7, "RandomCorners": 0})
    square, random, whole = data_of(written(tmp_path, {"run": cut}))["runs"][0]["curves"]["lines"]
    assert (square["known"], square["note"]) == (7, "known up to 7 queries")
    assert max(square["queries"]) <= 7
    assert square["low"] is None
    assert (random["known"], random["note"]) == (0, "too early to say")
    assert (whole["known"], whole["note"]) == (40, "")
    waiting = {name: replace(result, outcomes=()) for name, result in small().results.items()}
    waiting["Square"] = replace(
        waiting["Square"], outcomes=tuple(Outcome(index, False, 0, "interrupted") for index in range(6))
    )
    (line,) = data_of(written(tmp_path, {"run": Comparison(waiting)}))["runs"][0]["curves"]["lines"]
    assert (line["known"], line["note"]) == (0, "waiting")


def test_the_headline_is_the_verdict(tmp_path: Path) -> None:
    run = data_of(written(tmp_path, {"run": small()}))["runs"][0]
    fooled = {each.index for result in small().results.values() for each in result.outcomes if each.success}
    (headline,) = run["headlines"]
    assert headline["value"] == f"{100 * (6 - len(fooled)) / 6:.1f}\N{NO-BREAK SPACE}%"
    assert headline["interval"] == "{:.1f} to {:.1f}".format(
        *(100 * end for end in wilson_interval(6 - len(fooled), 6))
    )
    assert headline["kind"] == "Measured on 6 images, with its 95 % interval."
    assert (run["banner"], run["warnings"]) == ("", [])


def test_warnings_are_those_of_the_comparison(tmp_path: Path) -> None:
    result = small().results["Square"]
    clean = replace(result.clean, warnings=("The scores are strange.",))
    warned = Comparison({"Square": replace(result, clean=clean)})
    run = data_of(written(tmp_path, {"run": warned}))["runs"][0]
    assert run["warnings"] == ["The scores are strange."]
    assert "one attack only" in run["headlines"][0]["kind"]


def test_several_runs_share_a_table_and_a_chart_in_which_an_attack_keeps_its_colour(tmp_path: Path) -> None:
    other = Comparison({name: small().results[name] for name in ("Square", "Parsimonious")})
    data = data_of(written(tmp_path, {"one": small(), "two": other}))
    rows = [row for group in data["overview"]["tables"][0]["groups"] for row in group]
    names = [f"{attack}, one" for attack in small().results] + ["Square, two", "Parsimonious, two"]
    assert [row[0]["text"] for row in rows] == names
    printed = [cell.text for comparison in (small(), other) for row in comparison.table().groups[0] for cell in row[1:]]
    assert [cell["text"] for row in rows for cell in row[1:]] == printed
    lines = {line["name"]: line for line in data["overview"]["curves"][0]["lines"]}
    assert list(lines) == names
    for attack in other.results:
        one, two = lines[f"{attack}, one"], lines[f"{attack}, two"]
        assert one["colour"] == two["colour"]
        assert one["dashes"] != two["dashes"]
    assert lines["Square, one"]["colour"] != lines["Parsimonious, one"]["colour"]
    assert [each["name"] for each in data["overview"]["headlines"]] == ["one", "two"]


def clean_of(classes: int, kind: Scores = "logits") -> CleanPredictions:
    return CleanPredictions(LABELS, np.ones(len(LABELS), np.bool_), classes, None, kind=kind)


@pytest.mark.parametrize(("given", "count", "name"), [(None, 1000, "goldfish"), (CLASSES, 10, "car"), (None, 10, None)])
def test_classes_have_the_names_of_the_data_or_of_imagenet(given: Any, count: int, name: str | None) -> None:
    names = class_names(given, clean_of(count))
    assert (names and names[1]) == name
    assert names is None or len(set(names)) == count


def test_a_model_that_returns_labels_may_have_more_classes_than_it_predicts() -> None:
    assert class_names(CLASSES, clean_of(8)) is None
    assert class_names(CLASSES, clean_of(8, "labels")) == CLASSES
    assert class_names(CLASSES, clean_of(11, "labels")) is None


def test_pictures_stop_where_the_file_would_grow_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "_PICTURES", 3000)
    runs = data_of(written(tmp_path, {"one": small(), "two": small()}))["runs"]
    pictured = [str(number) in run["gallery"]["originals"] for run in runs for number in range(len(IMAGES))]
    assert pictured == sorted(pictured, reverse=True)
    assert 0 < sum(pictured) < len(IMAGES)
    assert [len(run["gallery"]["cards"]) for run in runs] == [3 * len(IMAGES)] * 2  # listed all the same
    assert not any("adversarial" in card for card in runs[1]["gallery"]["cards"])


@pytest.mark.parametrize("shape", [(1, 9, 5), (2, 6, 6), (4, 6, 6)])
def test_pictures_of_any_channels_and_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((3, *shape), np.float32)

    def bright(batch: Image) -> Image:
        mean = batch.mean((1, 2, 3))
        return np.stack([mean, 1 - mean], 1)

    found = parsimon.compare(
        bright, images, bright(images).argmax(1), 0.4, ["random"], budget=9, scores="probabilities"
    )
    gallery = data_of(written(tmp_path, {"run": found}))["runs"][0]["gallery"]
    assert pixels(gallery["originals"]["0"]).shape == (3 if shape[0] >= 3 else 1, *shape[1:])


def test_hostile_names_stay_within_the_data(tmp_path: Path) -> None:
    comparisons, facts = hostile(small())
    tame = Tags(written(tmp_path, {"run": small()}).read_text()).found
    path = written(tmp_path, comparisons, facts=facts)
    assert [tag for tag, _ in Tags(path.read_text()).found] == [tag for tag, _ in tame]
    run = data_of(path)["runs"][0]
    assert run["name"] == HOSTILE
    assert run["facts"][0]["rows"] == [[HOSTILE, HOSTILE]]
    assert run["gallery"]["classes"] == [HOSTILE] * 10


def test_facts_are_told_as_lines_of_text(tmp_path: Path) -> None:
    run = data_of(written(tmp_path, {"run": small()}, facts={"run": FACTS}))["runs"][0]
    spec, environment = (dict(fact["rows"]) for fact in run["facts"])
    assert spec == {"model": "robust", "data": "bundled", "attacks": "a, b", "targeted": "false"}
    assert environment == {"packages numpy": "2.0", "command": "parsimon compare 'two words'"}
    assert run["sentence"] == (
        "Each of 3 attacks tried to fool the model robust on 6 images that it classifies correctly (data: bundled), "
        "with at most 40 queries per image, changing no pixel by more than 12.75/255."
    )


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    once = written(tmp_path, {"run": small()}, facts={"run": FACTS}).read_bytes()
    assert written(tmp_path, {"run": small()}, facts={"run": FACTS}).read_bytes() == once


def test_nothing_to_show_and_facts_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one run"):
        written(tmp_path, {})
    with pytest.raises(InputError, match="facts must be of the runs run; got some of 'other'"):
        written(tmp_path, {"run": small()}, facts={"other": FACTS})
