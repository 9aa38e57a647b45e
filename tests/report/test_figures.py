"""Figures: what they plot is what the statistics say, and a paper can take the files as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from PIL import Image as Pillow

from parsimon.attacks import ATTACKS, PGD, Square
from parsimon.core.engine import Counters
from parsimon.core.threat import Threat
from parsimon.core.types import Outcome
from parsimon.errors import InputError, MissingExtraError
from parsimon.report import figures
from parsimon.report.figures import COLUMN, PAGE, Setting
from parsimon.report.style import marks
from parsimon.results.result import CleanPredictions, Comparison, Result
from parsimon.results.statistics import band, curve, mean_band, wilson_interval
from report_pages import evaluated

BUDGET = 2000


def outcomes(images: int, rate: float, median: float, seed: int) -> list[Outcome]:
    """As attacks have them: most images fooled soon, some late, some never."""
    rng = np.random.default_rng(seed)
    queries = rng.lognormal(np.log(median), 1.3, images).round()
    fooled = (rng.random(images) < rate) & (queries <= BUDGET)
    return [
        Outcome(index, bool(fooled[index]), int(queries[index]) if fooled[index] else BUDGET, "budget")
        for index in range(images)
    ]


ENTRIES = {
    "Parsimonious": outcomes(200, 0.9, 100, 0),
    "Bandits": outcomes(200, 0.8, 150, 1),
    "NES": outcomes(200, 0.6, 400, 2),
}
LONG = {**ENTRIES, "Bandits(online_rate=0.1, image_rate=0.01, exploration=0.1, probe=0.1, tile=16)": ENTRIES["NES"]}
FAMILIES = {"Parsimonious": [outcomes(80, 0.9, 90 + seed, seed) for seed in range(3)], "Bandits": [ENTRIES["Bandits"]]}
NOISE = np.random.default_rng(3).choice(np.array([-8, -6, 0, 8]) / 255, 4000, p=[0.45, 0.02, 0.05, 0.48])
DIFFERENCES = np.random.default_rng(4).normal(0, 0.2, (2, 50))
POINTS = [
    *(Setting("Parsimonious", queries, rate, k) for queries, rate, k in [(722, 0.985, "32"), (723, 0.9851, "64")]),
    *(Setting(f"tile {tile}", 900 + tile, 0.95 - tile / 1000) for tile in range(9)),
]
PIXELS = np.random.default_rng(5).random((4, 2, 3, 8, 8), dtype=np.float32)
PAIRS = [(original, perturbed) for original, perturbed in PIXELS]
CELLS = [{"h": h, "eta": eta, "success": 100 * h + eta} for h in (0.01, 0.1) for eta in (1, 10, 100)]

FIGURES: dict[str, Callable[[], Figure]] = {
    "curves": lambda: figures.success_curves(ENTRIES, BUDGET, {"PGD": 0.93}),
    "curves-log": lambda: figures.success_curves(ENTRIES, BUDGET, {"PGD": 0.93}, log=True, width=PAGE),
    "curves-third": lambda: figures.success_curves(ENTRIES, BUDGET, legend=False, width=PAGE / 3),
    "curves-long-name": lambda: figures.success_curves(LONG, BUDGET),
    "bands": lambda: figures.curve_bands(FAMILIES, BUDGET),
    "noise": lambda: figures.noise_histogram(NOISE, 8 / 255),
    "noise-half": lambda: figures.noise_histogram(NOISE, 8 / 255, width=COLUMN / 2),
    "differences": lambda: figures.sorted_differences(*DIFFERENCES),
    "sensitivity": lambda: figures.sensitivity(POINTS),
    "examples": lambda: figures.examples(PAIRS, ["cat", "seen as automobile", "ship", "deer"]),
    "grid": lambda: figures.grid(CELLS, "h", "eta", "success"),
}
each_figure = pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)


# --- files ------------------------------------------------------------------------------------------------------------


@each_figure
def test_files_are_written_in_each_format_and_twice_the_same(draw: Callable[[], Figure], tmp_path: Path) -> None:
    for time in ("first", "again"):
        figure = draw()
        for ending in ("pdf", "svg", "PNG"):
            figures.save(figure, tmp_path / f"{time}.{ending}")
    for ending in ("pdf", "svg", "PNG"):
        assert (tmp_path / f"first.{ending}").read_bytes() == (tmp_path / f"again.{ending}").read_bytes()

    document = (tmp_path / "first.pdf").read_bytes()
    assert document.startswith(b"%PDF")
    assert b"/Type3" not in document
    assert b"CreationDate" not in document
    assert b"/FontFile2" in document  # an embedded TrueType font

    drawing = ElementTree.parse(tmp_path / "first.svg").getroot()
    assert drawing.tag.endswith("svg")
    assert float(drawing.attrib["width"].removesuffix("pt")) == pytest.approx(72 * figure.get_figwidth())
    assert b"<text" not in (tmp_path / "first.svg").read_bytes()  # type as outlines: no font to be missing
    assert b"dc:date" not in (tmp_path / "first.svg").read_bytes()

    with Pillow.open(tmp_path / "first.PNG") as picture:
        assert picture.width == pytest.approx(300 * figure.get_figwidth(), abs=1)


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.pdf, \.svg, \.png; got 'curves\.bmp'"):
        figures.save(FIGURES["noise"](), tmp_path / "curves.bmp")


@each_figure
def test_nothing_reaches_beyond_the_page(draw: Callable[[], Figure]) -> None:
    figure = draw()
    box = figure.get_tightbbox()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= figure.get_figwidth() + 0.01
    assert box.y1 <= figure.get_figheight() + 0.01


@pytest.mark.parametrize("name", ["curves", "curves-long-name", "bands", "sensitivity"])
def test_the_legend_hides_nothing(name: str) -> None:
    figure = FIGURES[name]()
    (legend,) = figure.legends
    assert not legend.get_window_extent().overlaps(figure.axes[0].get_window_extent())
    assert figure.axes[0].get_window_extent().height > 0.5 * 72  # and leaves room


def test_labels_beside_markers_do_not_overlap() -> None:
    texts = FIGURES["sensitivity"]().axes[0].texts
    assert [text.get_text() for text in texts] == ["32", "64"]
    assert not texts[0].get_window_extent().overlaps(texts[1].get_window_extent())


# --- what is plotted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [False, True])
def test_curves_are_the_statistics(log: bool) -> None:
    axes = figures.success_curves(ENTRIES, BUDGET, {"PGD": 0.93}, log=log, confidence=0.9).axes[0]
    assert axes.get_xscale() == ("log" if log else "linear")
    for (name, of), line, shade in zip(ENTRIES.items(), axes.lines, axes.collections, strict=False):
        expected = curve(of, BUDGET)
        at, rates = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert line.get_label() == name
        assert line.get_drawstyle() == "steps-post"
        assert rates == pytest.approx(100 * expected.at(at))
        assert (at[0], at[-1]) == (1 if log else 0, BUDGET)
        assert set(expected.queries[expected.queries > 1]) <= set(at)  # every rise is drawn where it is
        low, high = band(expected, at, 0.9)
        edges = np.asarray(shade.get_paths()[0].vertices)
        assert edges[:, 1].min() == pytest.approx(100 * low.min())
        assert edges[:, 1].max() == pytest.approx(100 * high.max())
    white_box = axes.lines[3]
    assert white_box.get_label() == "PGD (white box)"
    assert np.asarray(white_box.get_ydata()) == pytest.approx([93, 93])
    assert white_box.is_dashed()


@pytest.mark.parametrize("log", [False, True])
def test_the_curve_of_an_unfinished_attack_ends_where_its_first_image_stopped(log: bool) -> None:
    fooled = [Outcome(index, True, 10 + 10 * index, "success") for index in range(8)]
    entries = {
        "Square": [*fooled, Outcome(8, False, 31, "interrupted"), Outcome(9, False, 60, "interrupted")],
        "NES": [*fooled, Outcome(8, False, 0, "interrupted")],
        "Bandits": [*fooled, Outcome(8, False, 100, "budget")],
    }
    lines = figures.success_curves(entries, 100, log=log).axes[0].lines
    square, nes, bandits = (np.asarray(line.get_xydata()) for line in lines)
    assert square[-1] == pytest.approx([31, 30])  # 3 of 10 within 31 queries
    assert nes.tolist() == ([] if log else [[0, 0]])
    assert bandits[-1] == pytest.approx([100, 100 * 8 / 9])


def test_an_unfinished_white_box_attack_has_no_line() -> None:
    comparison = compared(Square=0.5, PGD=0.9)
    result = comparison.results["PGD"]
    cut = replace(result, outcomes=(*result.outcomes[:-1], Outcome(39, False, 3, "interrupted")))
    shown = figures.comparison_curves({"run": Comparison({**comparison.results, "PGD": cut})})
    assert [line.get_label() for line in shown.axes[0].lines] == ["Square"]


def compared(**rates: float) -> Comparison:
    """Attacks by their names that fooled so much of 40 images; PGD is the white box."""
    images, labels = np.zeros((40, 1, 1, 1), np.float32), np.zeros(40, np.intp)
    clean = CleanPredictions(labels, labels == 0, 2, np.ones(40))
    return Comparison(
        {
            name: Result(
                PGD() if name == "PGD" else Square(),
                Threat(0.1),
                int(1000 * rate),
                images,
                labels,
                clean,
                tuple(
                    Outcome(index, index < 40 * rate, 5 + index, "success" if index < 40 * rate else "budget")
                    for index in range(40)
                ),
                Counters(),
            )
            for name, rate in rates.items()
        }
    )


def test_curves_of_a_comparison_are_those_of_its_attacks() -> None:
    comparison = compared(Square=0.5, PGD=0.9, NES=0.5)
    entries = {name: comparison.results[name].outcomes for name in ("Square", "NES")}
    shown, expected = figures.comparison_curves({"run": comparison}), figures.success_curves(entries, 500, {"PGD": 0.9})
    for line, other in zip(shown.axes[0].lines, expected.axes[0].lines, strict=True):
        assert np.array_equal(np.asarray(line.get_xydata()), np.asarray(other.get_xydata()))
        assert line.get_label() == other.get_label()


def test_curves_of_several_comparisons_name_them_and_end_at_the_smallest_budget() -> None:
    several = {
        name: compared(Square=0.5, PGD=rate) for name, rate in zip("abcde", (0.5, 0.6, 0.7, 0.8, 0.9), strict=True)
    }
    axes = figures.comparison_curves({**several, "f": compared(Square=0.3)}, log=True, width=PAGE).axes[0]
    names = [str(line.get_label()) for line in axes.lines]
    assert names == [*(f"Square, {name}" for name in "abcdef"), *(f"PGD, {name} (white box)" for name in "abcde")]
    assert axes.get_xlim() == (1, 300)
    assert [float(np.asarray(line.get_ydata())[0]) for line in axes.lines[6:]] == pytest.approx([50, 60, 70, 80, 90])


def test_an_attack_keeps_its_colour_in_several_comparisons() -> None:
    several = {name: compared(Square=0.5, NES=0.4) for name in "ab"}
    square_a, nes_a, square_b, nes_b = figures.comparison_curves(several).axes[0].lines
    assert square_a.get_color() == square_b.get_color() != nes_a.get_color() == nes_b.get_color()
    assert square_a.get_marker() != square_b.get_marker()


def intervals(figure: Figure) -> list[tuple[float, float]]:
    """The intervals beside the right edge, in percent."""
    shapes = [each for each in figure.axes[0].patches if isinstance(each, PathPatch)]
    points = [np.asarray(each.get_path().vertices) for each in shapes]
    return [(float(each[0, 1]), float(each[1, 1])) for each in points]


def test_wide_intervals_stand_beside_the_plot_and_within_the_figure() -> None:
    few = {name: of[:20] for name, of in ENTRIES.items()}
    figure = figures.success_curves(few, BUDGET, {"PGD": 0.99})
    assert not figure.axes[0].collections
    fooled = [sum(each.success for each in of) for of in few.values()]
    ends = [100 * end for count in fooled for end in wilson_interval(count, 20)]
    assert [end for each in intervals(figure) for end in each] == pytest.approx(ends)
    assert figure.get_tightbbox().x1 <= figure.get_figwidth() + 0.01
    assert figure.axes[0].get_ylim()[1] > 99
    assert intervals(figures.success_curves(ENTRIES, BUDGET)) == []


def test_accuracy_against_radius_is_the_evaluations() -> None:
    axes = figures.accuracy_against_radius(evaluated()).axes[0]
    for container, (model, row) in zip(axes.containers, evaluated().evaluations.items(), strict=True):
        assert container.get_label() == model
        expected = [row[0].correct.mean(), *(each.robust.mean() for each in row)]
        line, _, (bars,) = container
        assert np.asarray(line.get_ydata()) == pytest.approx(100 * np.array(expected))
        assert np.asarray(line.get_xdata()) == pytest.approx([0, 5.1, 12.75])
        robust = int(row[-1].robust.sum())
        assert bars.get_segments()[-1][:, 1] == pytest.approx([100 * end for end in wilson_interval(robust, 6)])


def test_accuracy_against_queries_falls_where_images_are_fooled() -> None:
    figure = figures.accuracy_against_queries(evaluated())
    lines = figure.axes[0].lines
    cells = {
        f"{model}, {radius}": row[place]
        for place, radius in enumerate(("5.1/255", "12.75/255"))
        for model, row in evaluated().evaluations.items()
    }
    assert [line.get_label() for line in lines] == list(cells)
    for line, cell in zip(lines, cells.values(), strict=True):
        for at, rate in np.asarray(line.get_xydata()):
            fooled = sum(
                any(each.index == image and each.success and each.queries <= at for each in outcomes)
                for image in range(6)
                for outcomes in [[each for result in cell.results.values() for each in result.outcomes]]
            )
            before = 0 if cell.smaller is None else int(cell.smaller.settled.sum())
            assert 6 - fooled - before <= round(rate * 6 / 100) <= 6 - fooled
        assert np.asarray(line.get_ydata())[-1] == pytest.approx(100 * cell.robust.mean())
    assert len(intervals(figure)) == 4
    assert lines[0].get_color() == lines[2].get_color() != lines[1].get_color()


def test_curves_can_go_without_bands_and_legend() -> None:
    figure = figures.success_curves(ENTRIES, BUDGET, confidence=None, legend=False)
    assert not figure.axes[0].collections
    assert not figure.legends


def test_bands_are_mean_and_deviation_over_settings() -> None:
    axes = FIGURES["bands"]().axes[0]
    line, shade = axes.lines[0], axes.collections[0]
    at = np.asarray(line.get_xdata())
    mean, deviation = mean_band([curve(of, BUDGET) for of in FAMILIES["Parsimonious"]], at)
    assert np.asarray(line.get_ydata()) == pytest.approx(100 * mean)
    edges = {(x, round(y, 9)) for x, y in np.asarray(shade.get_paths()[0].vertices)}
    for side in (-1, 1):
        rates = 100 * (mean + side * deviation)
        assert {(x, round(y, 9)) for x, y in zip(at, rates, strict=True)} <= edges
    assert line.get_label() == "Parsimonious (3 settings)"


def test_bars_are_shares_of_the_pixels_nearest_to_them() -> None:
    bars = figures.noise_histogram([[-0.1, -0.09], [0.0, 0.1]], 0.1, bars=5, scale=1).axes[0]
    assert [bar.get_height() for bar in bars.patches] == pytest.approx([50, 0, 25, 0, 25])  # type: ignore[attr-defined]
    assert [label.get_text() for label in bars.get_xticklabels()][1:4] == ["−0.05\n ", "0\n ", "0.05\n "]  # noqa: RUF001
    with pytest.raises(InputError, match=r"within eps, 0\.1; got up to 2"):
        figures.noise_histogram([2.0], 0.1)
    with pytest.raises(InputError, match="got none"):
        figures.noise_histogram([], 0.1)


def test_differences_are_sorted_for_each_search() -> None:
    zero, *lines = FIGURES["differences"]().axes[0].lines
    assert np.asarray(zero.get_ydata()).tolist() == [0, 0]
    for line, values in zip(lines, DIFFERENCES, strict=True):
        assert np.asarray(line.get_ydata())[:-1].tolist() == sorted(values)
    with pytest.raises(InputError, match=r"same images in both; got the shapes \(2,\) and \(3,\)"):
        figures.sorted_differences([1, 2], [1, 2, 3])


def test_every_setting_has_a_marker_in_the_look_of_its_family() -> None:
    axes = FIGURES["sensitivity"]().axes[0]
    found = {
        (line.get_label(), x, round(y, 9))
        for line in axes.lines
        for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
    }
    assert found == {(point.family, point.queries, round(100 * point.rate, 9)) for point in POINTS}


def test_originals_are_above_perturbed_images() -> None:
    axes = np.array(FIGURES["examples"]().axes).reshape(2, 4)
    for row in range(2):
        for column in range(4):
            shown = np.asarray(axes[row, column].images[0].get_array())
            assert np.abs(shown / 255 - PIXELS[column, row].transpose(1, 2, 0)).max() <= 0.5 / 255 + 1e-6
    assert [axis.get_ylabel() for axis in axes[:, 0]] == ["original", "perturbed"]
    grey = figures.examples([(PIXELS[0, 0, :1], PIXELS[0, 1, :1])]).axes[0]
    assert np.asarray(grey.images[0].get_array()).shape == (8, 8)
    with pytest.raises(InputError, match="4 pairs and 1 captions"):
        figures.examples(PAIRS, ["one"])


def test_a_grid_has_each_number_in_its_cell_and_the_best_in_bold() -> None:
    axes = figures.grid(CELLS[:-1], "h", "eta", "success", best="low").axes[0]
    texts = {text.get_position(): text for text in axes.texts}
    assert [texts[column, 0].get_text() for column in range(3)] == ["2.0", "11.0", "101.0"]
    assert [texts[column, 1].get_text() for column in range(3)] == ["11.0", "20.0", "–"]  # noqa: RUF001
    assert [place for place, text in texts.items() if text.get_fontweight() == "bold"] == [(0, 0)]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("eta", "h", "success")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0.01", "0.1"]
    with pytest.raises(InputError, match=r"two at h 0\.01, eta 1"):
        figures.grid([*CELLS, CELLS[0]], "h", "eta", "success")
    with pytest.raises(InputError, match="no mean, but h, eta, success"):
        figures.grid(CELLS, "h", "eta", "mean")


# --- looks ------------------------------------------------------------------------------------------------------------


def test_an_attack_has_the_same_mark_in_every_figure_and_shares_it_with_none() -> None:
    own = [attack.__name__ for attack in ATTACKS.values() if attack.needs != "gradient"]
    names = [*own, *(f"variant {number}" for number in range(15))]
    together = marks(names)
    assert len(set(together.values())) == len(names)
    for needed in ({"label"}, {"loss", "scores"}):  # these are compared most often
        group = [attack.__name__ for attack in ATTACKS.values() if attack.needs in needed]
        group = [name for name in group if name != "Scatter"]  # it is for models with a detector
        assert len({together[name].colour for name in group}) == len(group)
    assert all(marks([name])[name] == together[name] for name in own)
    assert marks(["mine", "NES"])["mine"] == marks(["mine"])["mine"]  # unless its colour is taken
    with pytest.raises(InputError, match="32 names apart; got 33"):
        marks([str(number) for number in range(33)])
    with pytest.raises(InputError, match="at least one attack"):
        figures.success_curves({}, BUDGET)


def test_lines_that_look_alike_in_grey_differ_in_dash_and_marker() -> None:
    made = list(marks([attack.__name__ for attack in ATTACKS.values() if attack.needs != "gradient"]).values())
    for number, one in enumerate(made):
        for other in made[number + 1 :]:
            grey = [float(np.dot(to_rgb(mark.colour), (0.299, 0.587, 0.114))) for mark in (one, other)]
            assert abs(grey[0] - grey[1]) > 0.1 or one.marker != other.marker


@pytest.mark.parametrize("name", ["curves", "sensitivity", "grid"])
def test_settings_of_matplotlib_are_neither_used_nor_changed(name: str, tmp_path: Path) -> None:
    draw = FIGURES[name]
    figures.save(draw(), tmp_path / "plain.svg")
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "pdf.fonttype": 3, "lines.linewidth": 9}):
        before = dict(mpl.rcParams)
        figures.save(draw(), tmp_path / "own.svg")
        assert dict(mpl.rcParams) == before
    assert (tmp_path / "own.svg").read_bytes() == (tmp_path / "plain.svg").read_bytes()


def test_a_figure_opens_no_window_and_the_module_needs_no_matplotlib_to_be_imported() -> None:
    code = (
        "import sys; from parsimon.report import figures; print('matplotlib' in sys.modules); "
        "figures.noise_histogram([0.0], 1); print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "False"]


@each_figure
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], Figure]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as Python itself marks what cannot be imported
    what = "this needs matplotlib, which is not installed: pip install 'parsimon[plot]'"
    with pytest.raises(MissingExtraError, match=re.escape(what)):
        draw()
