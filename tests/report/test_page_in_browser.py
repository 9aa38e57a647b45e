"""What a reader can do with the report in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsimon.core.types import Outcome
from parsimon.results.result import Comparison
from report_pages import CLASSES, FACTS, HOSTILE, hostile, small, written
from sample_report import made


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

    def fewest_queries(self) -> list[int]:
        """Of the attacks that fooled, on each card."""
        script = (
            "cards => cards.map(card => [...card.querySelectorAll('.fooled .queries')].map(each => each.textContent))"
        )
        shown = self.page.locator(".card").evaluate_all(script)
        return [min(int(text.split()[0].replace(",", "")) for text in texts) for texts in shown]

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
    results = list(made(40).results.values())
    by_image = list(zip(*(result.outcomes for result in results), strict=True))
    fewest = sorted(min(each.queries for each in every if each.success) for every in by_image)
    assert reader.texts(".count") == ["40 images"]
    assert reader.fewest_queries() == fewest[:24]
    reader.page.locator(".more").click()
    assert reader.fewest_queries() == fewest
    reader.choose(sort="image number")
    assert reader.texts(".card .about")[:3] == ["image 0", "image 1", "image 2"]
    reader.page.locator(".direction").click()
    assert reader.texts(".card .about")[0] == "image 39"
    reader.choose(state="fooled by every attack")
    assert reader.texts(".count") == [f"{sum(all(each.success for each in every) for every in by_image)} of 40 images"]
    reader.choose(attack="PGD", state="not fooled")
    assert reader.texts(".count") == [f"{sum(not each.success for each in results[2].outcomes)} of 40 images"]
    assert set(reader.texts(".card figure:visible .what")) == {"original", "PGD"}
    reader.choose(state="all", **{"class": "cat"})
    assert {text.split()[0] for text in reader.texts(".card figure:first-child .classes")} == {"cat"}


def test_an_image_has_one_card_with_its_original_once(reader: Reader) -> None:
    outcomes = [result.outcomes[5] for result in made(40).results.values()]
    reader.choose(sort="image number")
    card = reader.page.locator(".card").nth(5)
    assert card.locator(".what").all_text_contents() == ["original", *made(40).results]
    assert card.locator("img.original").count() == 1
    assert card.locator("img.adversarial:visible").count() == sum(each.success for each in outcomes)
    assert card.locator("img.perturbation:visible").count() == 0
    reader.choose(show="perturbations")
    assert card.locator("img.adversarial:visible").count() == 0
    assert card.locator("img.perturbation:visible").count() == sum(each.success for each in outcomes)


def test_classes_are_shown_with_the_models_confidence_in_them(reader: Reader) -> None:
    result = made(40).results["Square"]
    reader.choose(sort="image number", attack="Square")
    reader.page.locator(".more").click()
    shown = [text.replace("\N{NO-BREAK SPACE}", " ") for text in reader.texts(".card figure:visible .classes")]
    expected = []
    for each in result.outcomes:
        seen = [(result.labels[each.index], result.clean.confidence_of(each.index))]
        seen += [(each.predicted, each.confidence)] * each.success
        expected += [f"{CLASSES[number]} {100 * round(confidence or 0, 3):.1f} %" for number, confidence in seen]
    assert shown == expected
    assert 40 < len(shown) < 80  # some were fooled, some not


def test_pictures_are_decoded(reader: Reader) -> None:
    sizes = reader.page.locator(".card img").evaluate_all(
        "images => Promise.all(images.map(image => image.decode().then(() => image.naturalWidth)))"
    )
    fooled = reader.page.locator(".card .fooled").count()
    assert len(sizes) == 24 + 2 * fooled
    assert set(sizes) == {32}


def test_the_robust_accuracy_is_the_most_prominent_thing(reader: Reader) -> None:
    assert reader.texts(".number") == [f"{100 * made(40).robust_accuracy:.1f}\N{NO-BREAK SPACE}%"]
    sizes = reader.page.locator("body *").evaluate_all(
        "all => all.map(each => [parseFloat(getComputedStyle(each).fontSize), each.className])"
    )
    assert max(sizes, key=lambda each: each[0])[1] == "number"
    assert reader.page.locator(".banner:visible").count() == 0
    assert reader.texts(".warnings:visible li") == list(made(40).warnings) != []


def test_an_unfinished_run_shows_its_banner_and_what_is_known(browser: Any, tmp_path: Path) -> None:
    whole = made(40)
    left = tuple(Outcome(index, False, 31, "interrupted") for index in range(2))
    square = replace(whole.results["Square"], outcomes=(*left, *whole.results["Square"].outcomes[2:]))
    idle = tuple(Outcome(index, False, 0, "interrupted") for index in range(40))
    results = {**whole.results, "Square": square, "PGD": replace(whole.results["PGD"], outcomes=idle)}
    reader = Reader(browser, written(tmp_path, {"a run": Comparison(results)}))
    assert reader.texts(".banner") == ["Unfinished: 0 of 40 images are done. Numbers are bounds."]
    fooled = sum(each.success and each.queries <= 31 for each in square.outcomes)
    said = [text.replace("\N{NO-BREAK SPACE}", " ") for text in reader.texts(".legend .value")]
    assert said[1:] == [f"{100 * fooled / 40:.1f} % known up to 31 queries", "waiting"]
    names = reader.page.locator("polyline.line").evaluate_all("lines => lines.map(line => line.dataset.name)")
    assert names == ["Parsimonious", "Square"]
    ends = reader.page.locator("polyline.line").evaluate_all(
        "lines => lines.map(line => Number(line.getAttribute('points').split(' ').at(-1).split(',')[0]))"
    )
    assert ends[1] < ends[0] / 4  # 31 of 1,000 queries
    reader.close()


def test_wide_intervals_stand_at_the_edge_and_a_name_shows_its_band(browser: Any, tmp_path: Path) -> None:
    for images, bands, beside in ((20, 0, 2), (500, 2, 0)):
        reader = Reader(browser, written(tmp_path, {"a run": made(images)}))
        assert (reader.page.locator(".band").count(), reader.page.locator(".ends").count()) == (bands, beside)
        reader.page.locator(".legend button").first.hover()
        assert reader.page.locator(".band").count() == max(1, bands)
        reader.close()


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
    assert reached[9:] == ["plot", "attack", "class", "state", "show", "sort", "direction", "more"]


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


def test_hostile_names_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    comparisons, facts = hostile(small())
    reader = Reader(browser, written(tmp_path, comparisons, facts=facts), viewport={"width": 360, "height": 740})
    assert reader.texts(".name") == [HOSTILE]
    assert reader.texts(".facts dt") == [HOSTILE, HOSTILE]
    names = [name.replace("\u2028", " ") for name in comparisons[HOSTILE].results]  # a table has no line breaks
    assert reader.texts("tbody th") == [*names, *names[1:]]
    assert reader.texts(".results caption")[1].startswith(f"{names[0]} against the others")
    assert reader.page.title() != "owned"
    assert reader.page.locator("img:not([src^='data:'])").count() == 0
    assert reader.fits()
    reader.close()


def test_one_of_several_runs_is_shown_below_what_they_share(browser: Any, tmp_path: Path) -> None:
    reader = Reader(browser, written(tmp_path, {"one": small(), "two": made(8)}))
    assert reader.texts(".name:visible") == ["2 runs", "one"]
    assert reader.texts(".headline:visible .what") == [
        *("one: robust accuracy", "two: robust accuracy"),
        "Robust accuracy",
    ]
    reader.page.locator("#choose select").select_option("two")
    assert reader.texts(".name:visible") == ["2 runs", "two"]
    assert reader.texts(".count:visible") == ["8 images"]
    assert reader.page.locator(".run:visible .line").count() > 6  # of both plots
    reader.page.get_by_label("Logarithmic").last.check()
    scales = reader.page.locator("input[value=log]").evaluate_all("radios => radios.map(radio => radio.checked)")
    assert scales == [False, False, True]
    reader.close()
