"""The report: complete, self-contained, deaf to hostile names; and what a reader can do with it in a browser."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import parsimon
from page import made
from parsimon.errors import InputError
from parsimon.protocol import Image
from parsimon.report import page as page_module
from parsimon.report.page import write_page
from parsimon.result import Comparison
from parsimon.statistics import curve, wilson_interval
from small_model import IMAGES, LABELS, linear

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!-- & {{data}} \u2028 \ud800"
CLASSES = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FACTS = {
    "spec": {"model": "robust", "data": "bundled", "attacks": ("a", "b"), "targeted": False, "loss": None},
    "environment": {"packages": {"numpy": "2.0"}, "command": ["parsimon", "compare", "two words"]},
    "classes": CLASSES,
}


@pytest.fixture(scope="module")
def small() -> Comparison:
    """A real comparison, in which some images are fooled and some withstand."""
    return parsimon.compare(linear, IMAGES, LABELS, 0.05, ["square", "random", "parsimonious"], budget=40)


@pytest.fixture(scope="module")
def large() -> Comparison:
    return made(500)


def written(folder: Path, comparisons: dict[str, Comparison], **facts: Any) -> Path:
    path = folder / "report.html"
    write_page(comparisons, path, **facts)
    return path


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


def test_nothing_is_fetched_from_anywhere(small: Comparison, tmp_path: Path) -> None:
    text = written(tmp_path, {"run": small}, facts={"run": FACTS}).read_text()
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
    images = data_of(path)["runs"][0]["gallery"]["images"]
    assert len(images) == 500
    assert all(image["original"] for image in images)


def test_the_tables_are_those_that_are_printed(small: Comparison, tmp_path: Path) -> None:
    tables = data_of(written(tmp_path, {"run": small}))["runs"][0]["tables"]
    assert [shown["heading"] for shown in tables] == ["Results", "Paired"]
    for shown, table in zip(tables, small.tables(), strict=True):
        assert shown["headers"] == list(table.headers)
        assert shown["groups"] == [
            [[{"text": c.text, "best": c.best, "interval": c.interval and list(c.interval)} for c in row] for row in g]
            for g in table.groups
        ]
        assert (shown["title"], shown["notes"]) == (table.title, list(table.notes))
        assert (shown["markdown"], shown["latex"]) == (table.markdown(), table.latex())


def test_one_attack_alone_has_one_table(small: Comparison, tmp_path: Path) -> None:
    alone = Comparison({"Square": small.results["Square"]})
    assert len(data_of(written(tmp_path, {"run": alone}))["runs"][0]["tables"]) == 1


def test_curves_rise_where_outcomes_say_with_wilsons_interval(small: Comparison, tmp_path: Path) -> None:
    shown = data_of(written(tmp_path, {"run": small}))["runs"][0]["curves"]
    assert shown["budget"] == 40
    assert [line["name"] for line in shown["lines"]] == list(small.results)
    for line, result in zip(shown["lines"], small.results.values(), strict=True):
        found = curve(result.outcomes, 40)
        assert line["queries"] == [0, *found.queries.tolist()]
        assert line["fooled"] == [0, *found.fooled.tolist()]
        ends = [wilson_interval(count, len(IMAGES)) for count in line["fooled"]]
        assert np.allclose(list(zip(line["low"], line["high"], strict=True)), ends, atol=1e-5)
    assert len({line["colour"] for line in shown["lines"]}) == 3


def test_a_white_box_attack_is_a_dashed_line_without_a_colour(large: Comparison, tmp_path: Path) -> None:
    lines = data_of(written(tmp_path, {"run": large}))["runs"][0]["curves"]["lines"]
    assert [line["white_box"] for line in lines] == [False, False, True]
    assert [bool(line["dashes"]) for line in lines] == [False, False, True]
    assert lines[2]["colour"] is None


def test_every_outcome_is_in_the_gallery_with_its_pictures(small: Comparison, tmp_path: Path) -> None:
    gallery = data_of(written(tmp_path, {"run": small}))["runs"][0]["gallery"]
    assert [image["number"] for image in gallery["images"]] == list(range(len(IMAGES)))
    states = set()
    for image in gallery["images"]:
        original = IMAGES[image["number"]]
        assert image["label"] == LABELS[image["number"]]
        assert np.abs(pixels(image["original"]) - original).max() < 1e-6  # they are 8-bit images
        assert image["before"] == pytest.approx(small.results["Square"].prepared.confidence[image["number"]], abs=5e-4)
        for (state, queries, predicted, confidence, *pictures), result in zip(
            image["attacks"], small.results.values(), strict=True
        ):
            outcome = result.outcomes[image["number"]]
            states.add(state)
            assert (state, queries) == ("fooled" if outcome.success else "withstood", outcome.queries)
            assert predicted == outcome.predicted
            assert confidence == (outcome.confidence and pytest.approx(outcome.confidence, abs=5e-4))
            assert bool(pictures) == outcome.success
            if pictures:
                adversarial = result.draw(outcome)
                assert np.abs(pixels(pictures[1]) - adversarial).max() <= 0.5 / 255 + 1e-6
                stretched = 0.5 + (adversarial - original) / (2 * 0.05)
                assert np.abs(pixels(pictures[0]) - stretched).max() <= 0.5 / 32 + 1 / 255
    assert states == {"fooled", "withstood"}


def test_an_unfinished_image_says_so(small: Comparison, tmp_path: Path) -> None:
    name, result = next(iter(small.results.items()))
    left = replace(result.outcomes[0], success=False, ended="interrupted", predicted=None, point=None)
    cut = Comparison({name: replace(result, outcomes=(left, *result.outcomes[1:]))})
    first = data_of(written(tmp_path, {"run": cut}))["runs"][0]["gallery"]["images"][0]
    assert first["attacks"][0][0] == "unfinished"


def test_pictures_stop_where_the_file_would_grow_too_large(
    small: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "_PICTURES", 3000)
    runs = data_of(written(tmp_path, {"one": small, "two": small}))["runs"]
    pictured = [bool(image["original"]) for run in runs for image in run["gallery"]["images"]]
    assert pictured == sorted(pictured, reverse=True)
    assert 0 < sum(pictured) < len(IMAGES)
    endings = [ending for image in runs[1]["gallery"]["images"] for ending in image["attacks"]]
    assert all(len(ending) == 4 for ending in endings)  # listed all the same


@pytest.mark.parametrize("shape", [(1, 9, 5), (2, 6, 6), (4, 6, 6)])
def test_pictures_of_any_channels_and_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((3, *shape), np.float32)

    def bright(batch: Image) -> Image:
        mean = batch.mean((1, 2, 3))
        return np.stack([mean, 1 - mean], 1)

    found = parsimon.compare(
        bright, images, bright(images).argmax(1), 0.4, ["random"], budget=9, scores="probabilities"
    )
    image = data_of(written(tmp_path, {"run": found}))["runs"][0]["gallery"]["images"][0]
    assert pixels(image["original"]).shape == (3 if shape[0] >= 3 else 1, *shape[1:])


def hostile(comparison: Comparison) -> tuple[dict[str, Comparison], dict[str, dict[str, Any]]]:
    """A comparison in which everything that has a name has a hostile one."""
    name = HOSTILE[:-1]  # attacks are named in text that was read, so that half a character is none of theirs
    results = {f"{name}{number}": result for number, result in enumerate(comparison.results.values())}
    facts = {"spec": {HOSTILE: HOSTILE}, "environment": {HOSTILE: [HOSTILE]}, "classes": [HOSTILE] * 10}
    return {HOSTILE: Comparison(results)}, {HOSTILE: facts}


def test_hostile_names_stay_within_the_data(small: Comparison, tmp_path: Path) -> None:
    comparisons, facts = hostile(small)
    tame = Tags(written(tmp_path, {"run": small}).read_text()).found
    path = written(tmp_path, comparisons, facts=facts)
    assert [tag for tag, _ in Tags(path.read_text()).found] == [tag for tag, _ in tame]
    run = data_of(path)["runs"][0]
    assert run["name"] == HOSTILE
    assert run["facts"][0]["rows"] == [[HOSTILE, HOSTILE]]
    assert run["gallery"]["classes"] == [HOSTILE] * 10


def test_facts_are_told_as_lines_of_text(small: Comparison, tmp_path: Path) -> None:
    run = data_of(written(tmp_path, {"run": small}, facts={"run": FACTS}))["runs"][0]
    spec, environment = (dict(fact["rows"]) for fact in run["facts"])
    assert spec == {"model": "robust", "data": "bundled", "attacks": "a, b", "targeted": "false"}
    assert environment == {"packages numpy": "2.0", "command": "parsimon compare 'two words'"}
    assert run["sentence"] == (
        "Each of 3 attacks tried to fool the model robust on 6 images that it classifies correctly (data: bundled), "
        "with at most 40 queries an image, changing no pixel by more than 12.75/255."
    )


def test_the_same_runs_give_the_same_bytes(small: Comparison, tmp_path: Path) -> None:
    once = written(tmp_path, {"run": small}, facts={"run": FACTS}).read_bytes()
    assert written(tmp_path, {"run": small}, facts={"run": FACTS}).read_bytes() == once


def test_nothing_to_show_and_facts_of_nothing_are_refused(small: Comparison, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one run"):
        written(tmp_path, {})
    with pytest.raises(InputError, match="facts must be of the runs run; got some of 'other'"):
        written(tmp_path, {"run": small}, facts={"other": FACTS})


# In a browser.


class Reader:
    """A page as a reader has it open; what went wrong and what was asked for is kept."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.route(re.compile("^(?!file:|data:)"), lambda route: route.abort())
        self.page.goto(path.as_uri())
        self.path = path

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.locator(selector).all_text_contents()
        return found

    def queries(self) -> list[int]:
        return [int(text.split()[0].replace(",", "")) for text in self.texts(".card .queries")]

    def choose(self, **chosen: str) -> None:
        for name, option in chosen.items():
            self.page.locator(f"select[name={name}]").select_option(label=option)

    def fits(self) -> bool:
        within: bool = self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        return within

    def close(self) -> None:
        assert self.complaints == []
        outside = [url for url in self.asked if url != self.path.as_uri() and not url.startswith("data:")]
        assert outside == []
        self.context.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("report"), {"a run": made(40)}, facts={"a run": FACTS})


@pytest.fixture
def reader(browser: Any, report: Path) -> Iterator[Reader]:
    opened = Reader(browser, report, permissions=["clipboard-read", "clipboard-write"])
    yield opened
    opened.close()


def test_the_page_shows_the_tables(reader: Reader) -> None:
    tables = made(40).tables()
    assert reader.page.title() == "a run \N{EN DASH} parsimon report"
    assert reader.texts(".results h3") == ["Results", "Paired"]
    assert reader.texts("thead th") == [header for table in tables for header in table.headers]
    shown = [cell for table in tables for group in table.groups for row in group for cell in row]
    assert reader.texts("tbody .value") == [cell.text for cell in shown]
    assert reader.texts("tbody strong") == [cell.text for cell in shown if cell.best]
    assert reader.texts("tbody .interval") == [" to ".join(cell.interval) for cell in shown if cell.interval]
    assert reader.texts("tbody td")[0] == "{} {} to {}".format(shown[1].text, *(shown[1].interval or ()))
    assert reader.texts("tbody.white-box th") == ["PGD"]
    assert reader.texts(".notes li") == [note for table in tables for note in table.notes]
    assert "model" in reader.texts(".facts dt")


def test_an_interval_stands_below_its_number(reader: Reader) -> None:
    below = "cell => cell.querySelector('.interval').getBoundingClientRect().top >= "
    below += "cell.querySelector('.value').getBoundingClientRect().bottom - 1"
    assert reader.page.locator("td:has(.interval)").first.evaluate(below)


@pytest.mark.parametrize("form", ["markdown", "latex"])
@pytest.mark.parametrize("number", [0, 1])
def test_each_table_is_copied(reader: Reader, form: str, number: int) -> None:
    reader.page.locator(f"[data-copy={form}]").nth(number).click()
    reader.page.locator(".status:has-text('Copied')").wait_for()
    assert reader.page.evaluate("navigator.clipboard.readText()") == getattr(made(40).tables()[number], form)()


def test_the_gallery_is_sorted_filtered_and_shown_bit_by_bit(reader: Reader) -> None:
    every = [each for result in made(40).results.values() for each in result.outcomes]
    fooled = sorted(each.queries for each in every if each.success)
    assert reader.texts(".count") == ["120 outcomes"]
    assert reader.queries() == fooled[:24]
    reader.page.locator(".more").click()
    assert reader.queries() == fooled[:48]
    reader.choose(sort="image number")
    assert [text.split()[-1] for text in reader.texts(".about")][:4] == ["0", "0", "0", "1"]
    reader.page.locator(".direction").click()
    assert reader.texts(".about")[0].endswith("image 39")
    reader.choose(sort="true class", attack="PGD")
    assert {text.split(" \N{MIDDLE DOT} ")[1] for text in reader.texts(".about")} == {"PGD"}
    reader.choose(attack="all", state="withstood")
    assert reader.texts(".count") == [f"{sum(not each.success for each in every)} of 120 outcomes"]
    assert all(
        count == 1
        for count in reader.page.locator(".card").evaluate_all(
            "cards => cards.map(card => card.querySelectorAll('img').length)"
        )
    )
    reader.choose(**{"class": "cat"})
    assert {text.split()[0] for text in reader.texts(".classes")} <= {"cat"}


def test_classes_are_shown_with_the_models_confidence_in_them(reader: Reader) -> None:
    result = made(40).results["Square"]
    reader.choose(sort="image number", attack="Square")
    reader.page.locator(".more").click()
    shown = [text.replace("\N{NO-BREAK SPACE}", " ") for text in reader.texts(".classes")]
    expected = []
    for each in result.outcomes:
        seen = [(result.labels[each.index], result.prepared.confidence[each.index])]
        seen += [(each.predicted, each.confidence)] * each.success
        said = [f"{CLASSES[number]} {100 * round(confidence, 3):.1f} %" for number, confidence in seen]
        expected.append(" \N{RIGHTWARDS ARROW} ".join(said))
    assert shown == expected
    assert len({len(text.split()) for text in shown}) == 2  # some were fooled, some not


def test_pictures_are_decoded(reader: Reader) -> None:
    sizes = reader.page.locator(".card img").evaluate_all(
        "images => Promise.all(images.map(image => image.decode().then(() => image.naturalWidth)))"
    )
    assert len(sizes) == 72
    assert set(sizes) == {32}


def test_a_curve_is_toggled_by_its_name(reader: Reader) -> None:
    names = reader.page.locator(".plot .line")
    assert names.evaluate_all("lines => lines.map(line => line.dataset.name)") == ["Parsimonious", "Square", "PGD"]
    button = reader.page.locator(".legend button", has_text="Square")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert names.evaluate_all("lines => lines.map(line => line.dataset.name)") == ["Parsimonious", "PGD"]
    button.press("Enter")
    assert names.count() == 3


def test_the_scale_is_switched(reader: Reader) -> None:
    ticks = reader.texts(".plot text")
    reader.page.get_by_label("Logarithmic").check()
    changed = reader.texts(".plot text")
    assert "0" in ticks
    assert "0" not in changed
    assert {"1", "10", "100"} <= set(changed)


def test_curves_are_read_by_keyboard_and_by_pointer(reader: Reader) -> None:
    outcomes = made(40).results["Parsimonious"].outcomes
    plot = reader.page.locator(".plot")
    plot.press("Home")
    plot.press("ArrowRight")
    at = int(plot.get_attribute("aria-valuenow"))
    fooled = sum(each.success and each.queries <= at for each in outcomes)
    assert reader.texts(".within")[0].startswith(f"Within {at} quer")
    assert reader.texts(".legend .value")[0].startswith(f"{100 * fooled / 40:.1f}")
    assert f"Parsimonious {100 * fooled / 40:.1f}" in plot.get_attribute("aria-valuetext")
    plot.press("End")
    assert plot.get_attribute("aria-valuenow") == "1000"
    plot.hover(position={"x": 200, "y": 100})
    assert 1 < int(plot.get_attribute("aria-valuenow")) < 1000


def test_the_tab_key_reaches_every_control_and_shows_where_it_is(reader: Reader) -> None:
    reached = []
    for _ in range(20):
        reader.page.keyboard.press("Tab")
        reached.append(
            reader.page.evaluate(
                "(({tagName, textContent, name, className}) => tagName === 'SELECT' ? name :"
                " className || (tagName === 'INPUT' ? 'scale' : textContent))(document.activeElement)"
            )
        )
        outlined = "[document.activeElement, document.activeElement.nextElementSibling]"
        shown = f"{outlined}.some(each => each && getComputedStyle(each).outlineStyle === 'solid')"
        assert reader.page.evaluate(shown), reached[-1]
        if reached[-1] == "more":
            break
    assert reached[:6] == ["skip", *["Copy as Markdown", "Copy as LaTeX"] * 2, "scale"]
    assert [name.split("\N{NO-BREAK SPACE}")[0][:3] for name in reached[6:9]] == ["Par", "Squ", "PGD"]
    assert reached[9:] == ["plot", "attack", "class", "state", "sort", "direction", "more"]


@pytest.mark.parametrize("width", [320, 390, 768, 840, 1024])
def test_no_width_needs_horizontal_scrolling(browser: Any, tmp_path: Path, width: int) -> None:
    """Nor do numbers of six digits."""
    many = made(40)
    results = {
        name: replace(
            result,
            budget=900_000,
            outcomes=tuple(replace(each, queries=each.queries + 800_000) for each in result.outcomes),
        )
        for name, result in many.results.items()
    }
    path = written(tmp_path, {"a run": Comparison(results, "Square")})
    reader = Reader(browser, path, viewport={"width": width, "height": 740})
    assert reader.fits()
    reader.close()


def test_a_phone_needs_no_horizontal_scrolling(browser: Any, report: Path) -> None:
    reader = Reader(browser, report, viewport={"width": 360, "height": 740}, has_touch=True)
    assert reader.fits()
    reader.page.locator(".more").tap()
    reader.page.get_by_label("Logarithmic").check()
    assert reader.fits()
    assert reader.page.locator("tbody").first.get_by_role("cell").count() > 0  # still a table to a screen reader
    reader.close()


def test_dark_mode_follows_the_reader(browser: Any, report: Path) -> None:
    shades = []
    for scheme in ("light", "dark"):
        reader = Reader(browser, report, color_scheme=scheme)
        colours = reader.page.evaluate(
            "(style => [style.color, style.backgroundColor])(getComputedStyle(document.body))"
        )
        shades.append([sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours])
        reader.close()
    (ink, paper), (dark_ink, dark_paper) = shades
    assert ink < 200 < 600 < paper
    assert dark_paper < 200 < 600 < dark_ink


def test_hostile_names_are_shown_as_text(browser: Any, small: Comparison, tmp_path: Path) -> None:
    comparisons, facts = hostile(small)
    reader = Reader(browser, written(tmp_path, comparisons, facts=facts), viewport={"width": 360, "height": 740})
    assert reader.texts(".name") == [HOSTILE]
    assert reader.texts(".facts dt") == [HOSTILE, HOSTILE]
    names = list(comparisons[HOSTILE].results)
    assert reader.texts("tbody th") == [*names, *names[1:]]
    assert reader.texts(".results caption")[1].startswith(f"{names[0]} against the others")
    assert reader.page.title() != "owned"
    assert reader.page.locator("img:not([src^='data:'])").count() == 0
    assert reader.fits()
    reader.close()


def test_several_runs_stand_one_below_the_other(browser: Any, small: Comparison, tmp_path: Path) -> None:
    reader = Reader(browser, written(tmp_path, {"one": small, "two": made(8)}))
    assert reader.texts("#contents a") == reader.texts(".name") == ["one", "two"]
    reader.page.get_by_label("Logarithmic").last.check()
    scales = reader.page.locator("input[value=log]").evaluate_all("radios => radios.map(radio => radio.checked)")
    assert scales == [False, True]
    reader.close()
