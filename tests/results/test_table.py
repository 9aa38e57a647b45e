"""The tables in their three formats: what they say, over what, and that a paper can take them as they are."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import zip_longest

import numpy as np
import pytest
from rich.console import Console

from parsimon import PGD, Comparison, Result, Square, Threat
from parsimon.core.engine import Counters
from parsimon.core.threat import Loss
from parsimon.core.types import Ended, Outcome
from parsimon.results.result import CleanPredictions
from parsimon.results.statistics import newcombe_interval, paired
from parsimon.results.table import Cell, Table
from parsimon.results.tables import paired_table

Row = tuple[str, Result]


def outcomes(*ends: int | None, ended: Ended = "budget", counts: tuple[int, int, int] = (0, 0, 0)) -> list[Outcome]:
    """Successes after that many queries; None is a failure. `counts`: not charged, outside the ball, with gradient."""
    return [
        Outcome(index, end is not None, 100 if end is None else end, ended if end is None else "success", *counts)
        for index, end in enumerate(ends)
    ]


def row(
    name: str,
    *ends: int | None,
    ended: Ended = "budget",
    white_box: bool = False,
    counts: tuple[int, int, int] = (0, 0, 0),
    loss: Loss = "cross-entropy",
    budget: int = 100,
) -> Row:
    """A row of a table: an attack on five images for each four that the model classifies correctly."""
    made = tuple(outcomes(*ends, ended=ended, counts=counts))
    given = np.zeros((5 * len(ends), 3, 1, 1), np.float32), np.zeros(5 * len(ends), np.intp)
    correct = np.arange(5 * len(ends)) < 4 * len(ends)
    clean = CleanPredictions(given[1], correct, 10, correct.astype(np.float64))
    attack = PGD() if white_box else Square()
    return name, Result(attack, Threat(8 / 255, loss=loss), budget, *given, clean, made, Counters())


def table(*rows: Row, relative_to: str | None = None) -> Table:
    return Comparison(dict(rows), relative_to).table()


THREE = (
    row("Quick", 10, 20, None, 40),
    row("Slow", 30, None, 50, 60),
    row("NES", 90, None, None, None, counts=(3, 2, 0)),
    row("PGD", 1, 2, 3, 4, white_box=True, counts=(0, 0, 5)),
)


def cells(text: str) -> list[list[str]]:
    """The rows of a Markdown table, without its rule."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if not set(row[0]) <= set(" -:")]


def test_every_number_is_where_its_header_says() -> None:
    header, quick, slow, nes, pgd = cells(table(*THREE, relative_to="NES").markdown())
    assert header == ["attack", "success", "mean", "median", "on NES's", "mean of all"]
    # Of three successes one sample in 27, more than 2.5 %, is three times the least, and one three times the most. Of
    # four, 5 samples of 256 have a mean below 1.5, and 15 one of at most that; 13 have a median of 1.
    mean, middle = "23.3 (10.0 to 40.0)", "20.0 (10.0 to 40.0)"
    assert quick == ["Quick", "**75.0%** (30.1 to 95.4)", mean, middle, "**10.0**", "**42.5**"]
    mean, middle = "46.7 (30.0 to 60.0)", "50.0 (30.0 to 60.0)"
    assert slow == ["Slow", "**75.0%** (30.1 to 95.4)", mean, middle, "30.0", "60.0"]
    assert nes == ["NES", "25.0% (4.6 to 69.9)", "90.0", "90.0", "90.0", "97.5"]
    assert pgd == ["PGD", "100.0% (51.0 to 100.0)", "2.5 (1.5 to 3.5)", "2.5 (1.0 to 4.0)", "1.0", "-"]


def test_a_terminal_shows_each_interval_below_its_number() -> None:
    lines = str(table(*THREE, relative_to="NES")).splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("Slow"))
    assert lines[row].split() == ["Slow", "75.0%", "46.7", "50.0", "30.0", "60.0"]
    assert lines[row + 1].split() == ["30.1-95.4", "30.0-60.0", "30.0-60.0"]
    for number, interval in (("75.0%", "30.1-95.4"), ("46.7", "30.0-60.0")):
        assert lines[row].index(number) + len(number) == lines[row + 1].index(interval) + len(interval)


def test_the_mean_over_a_references_successes_has_an_interval_over_them() -> None:
    both = table(row("A", 10, 40, 13, 1, 1, 1), row("B", 1, 1, 1, None, None, None), relative_to="B")
    assert cells(both.markdown())[1][4] == "21.0 (10.0 to 40.0)"


def test_averages_over_the_images_of_an_attack_that_fooled_none_are_left_out() -> None:
    made = table(row("Quick", 10, 20, None, 40), row("NES", None, None, None, None), relative_to="NES")
    assert made.headers == ["attack", "success", "mean", "median", "mean of all"]
    assert not any("NES's" in note for note in made.notes)


def test_the_white_box_line_comes_last_and_is_never_the_best() -> None:
    made = table(THREE[3], *THREE[:3])
    assert [[row[0].text for row in group] for group in made.groups] == [["Quick", "Slow", "NES"], ["PGD"]]
    assert not any(cell.best for cell in made.groups[1][0])


def test_nothing_is_the_best_of_one() -> None:
    assert "**" not in table(THREE[0], THREE[3]).markdown()


def best(made: Table) -> dict[str, set[str]]:
    """The attacks that are marked as the best, by column."""
    (rows,) = made.groups
    return {
        header: {row[0].text for row in rows if row[column].best}
        for column, header in enumerate(made.headers)
        if column
    }


def test_averages_over_successes_are_ranked_only_where_all_fooled_the_same_images() -> None:
    same = best(table(row("A", 10, 20, None), row("B", 30, 40, None), relative_to="A"))
    assert same == {"success": {"A", "B"}, "mean": {"A"}, "median": {"A"}, "on A's": {"A"}, "mean of all": {"A"}}
    # B averages over an easier set of images; on those that B fooled, both have the same images again.
    other = best(table(row("A", 10, 90, None), row("B", 30, None, None), relative_to="B"))
    assert other == {"success": {"A"}, "mean": set(), "median": set(), "on B's": {"A"}, "mean of all": {"A"}}
    third = best(table(row("A", 10, 90, None), row("B", None, 30, None), relative_to="A"))
    assert third["on A's"] == set()


def test_an_unfinished_attack_makes_nobody_the_best() -> None:
    made = best(table(row("A", 10, 20, None), row("B", 30, None, None, ended="interrupted")))
    assert made == {"success": set(), "mean": set(), "median": set(), "mean of all": set()}


def test_without_a_reference_there_is_no_column_for_it() -> None:
    assert cells(table(*THREE).markdown())[0] == ["attack", "success", "mean", "median", "mean of all"]


def test_notes_say_what_numbers_are_over_and_what_they_leave_out() -> None:
    notes = "\n".join(table(*THREE, relative_to="NES").notes)
    assert "Clean accuracy: 80.0%. Robust accuracy: 0.0% under Quick, Slow, NES." in notes
    assert "With PGD, which sees gradients: 0.0%." in notes
    assert "a failure counts as 100 queries" in notes
    assert "mean queries on the images that NES fooled." in notes
    assert "Evaluations not charged: NES 12." in notes
    assert "Evaluations outside the ball: NES 8." in notes
    assert "Evaluations with gradient: PGD 20." in notes
    assert "Queries charged: Quick 170, Slow 240, NES 390, PGD 10." in notes
    assert "Loss: cross-entropy." in notes
    assert "Intervals: 95%; Wilson for success, percentile bootstrap for queries." in notes


def test_losses_that_differ_are_named() -> None:
    margin = row("Square", 10, 20, None, 40, loss="margin")
    assert "Loss: cross-entropy (Slow); margin (Square)." in table(THREE[1], margin).notes


def test_accuracy_under_attack_is_the_clean_one_less_what_any_attack_fooled() -> None:
    assert "Robust accuracy: 60.0% under this attack" in table(row("A", 9, None, None, None)).notes[0]
    union = table(row("A", 9, None, None, None), row("B", 9, 8, None, None))
    assert "Robust accuracy: 40.0% under these attacks" in union.notes[0]


def test_an_estimate_says_on_how_many_images_it_rests() -> None:
    name, result = row("A", 9, None, None, None)
    whole = replace(result, clean=replace(result.clean, correct=np.arange(20) < 4))
    some = replace(result, clean=replace(result.clean, correct=np.arange(20) < 16))
    assert "estimated" not in str(table((name, whole)))
    verdict = Comparison({name: some}).verdict
    assert f"It is estimated from 4 of 16 correctly classified images: {verdict}." in table((name, some)).notes


def test_a_targeted_run_does_not_speak_of_robust_accuracy() -> None:
    name, result = row("A", 9, None)
    notes = table((name, replace(result, threat=Threat(0.05, targeted=True)))).notes
    assert notes[0] == "Clean accuracy: 80.0%."
    assert not any("obust" in note for note in notes)


def test_warnings_come_first() -> None:
    name, result = row("A", 9, None)
    warned = replace(result, clean=replace(result.clean, warnings=("Beware.",)))
    assert table((name, warned)).notes[0] == "WARNING: Beware."


def test_the_rate_of_an_interrupted_run_is_shown_as_a_lower_bound() -> None:
    whole = str(table(row("A", 9, None)))
    cut = str(table(row("A", 9, None, None, ended="interrupted")))
    assert "50.0%" in whole
    assert ">=" not in whole
    assert "Unfinished" not in whole
    assert ">= 33.3%" in cut
    assert "Unfinished images, counted as not fooled so far: A 2." in cut
    assert "Paired" not in cut


def test_attacks_that_cannot_be_paired_yet_say_so() -> None:
    unfinished = row("B", 9, None, ended="interrupted")
    left_out = "Paired comparison: omitted until every image is finished."
    assert left_out in table(row("A", 9, None), unfinished).notes
    assert left_out not in table(row("A", 9, None), row("B", 9, 9)).notes
    assert left_out not in table(row("A", 9, None, white_box=True), unfinished).notes


def test_a_table_of_large_numbers_fits_80_columns_and_hides_no_digit() -> None:
    large = [row(name, *[123_456] * 999, budget=1_000_000) for name in ("Parsimonious", "RandomCorners")]
    failure = Outcome(999, False, 1_000_000, "budget")
    large = [(name, replace(result, outcomes=(*result.outcomes, failure))) for name, result in large]
    text = str(table(*large, relative_to="Parsimonious"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for number in ("99.9%", "123,456 ", "123,456-123,456 ", "124,333", "1,000,000", "1,000 images"):
        assert number in text
    names = re.sub(r"(?m) .*\n(\w+) .*", r"\1", text)  # folded, if they must be
    assert "Parsimonious" in names
    assert "RandomCorners" in names


@pytest.mark.parametrize("budget", [100, 9_999, 99_999])
def test_names_of_attacks_are_not_folded_where_numbers_leave_room(budget: int) -> None:
    names = ["Parsimonious", "SignHunter", "RandomCorners"]
    several = [row(name, budget - 1, budget, budget - 5, None, budget=budget) for name in names]
    lines = str(table(*several, relative_to=names[0])).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in names)


def test_a_long_name_is_folded_not_cut() -> None:
    text = str(table(row("NES:imagenet-0.05,samples=50,strict=true", 1, 1, 1, 1), THREE[0], relative_to="Quick"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_the_table_can_be_printed_where_only_ascii_can() -> None:
    """A Ctrl-C must not end in an encoding error; the frame's lines are replaced by rich where it has to."""
    assert set(str(table(*THREE))) - {"─"} <= set(map(chr, range(128)))


def test_markdown_rows_are_aligned() -> None:
    lines = [line for line in table(*THREE).markdown().splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert len({tuple(match.start() for match in re.finditer(r"\|", line)) for line in lines}) == 1


def test_latex_is_a_tabular_of_booktabs() -> None:
    text = table(*THREE, row("NES_2 & 5%", 7, 7, 7, 7), relative_to="NES").latex()
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert lines[0] == r"\begin{tabular}{lrrrrr}"
    assert (lines[1], lines[-2], lines[-1]) == (r"\toprule", r"\bottomrule", r"\end{tabular}")
    assert lines.count(r"\midrule") == 2  # under the header, and above the white-box line
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len(rows) == 1 + 2 * 5  # the header, and each attack with its intervals below
    assert all(len(re.findall(r"(?<!\\)&", row)) == 5 for row in rows)
    assert r"NES\_2 \& 5\%" in text
    assert not re.search(r"(?<!\\)%", "\n".join(lines))  # would hide the rest of its line
    assert r"\textbf{100.0\%}" in text
    assert r"{\scriptsize 51.0--100.0}" in text
    for opened, closed in zip_longest(re.findall("{", text), re.findall("}", text)):
        assert (opened, closed) == ("{", "}")


@pytest.mark.parametrize("targeted", [False, True])
def test_the_title_says_the_threat(targeted: bool) -> None:
    made = replace(THREE[0][1], threat=Threat(0.05, targeted)).table()
    goal = "targeted" if targeted else "untargeted"
    assert made.title == f"eps 12.75/255, {goal}, 4 images, at most 100 queries per image"


# --- paired -----------------------------------------------------------------------------------------------------------


def against(*others: Row, subject: Row = THREE[0]) -> Table:
    pairs = {name: paired(subject[1].outcomes, other.outcomes, 100) for name, other in others}
    return paired_table(subject[0], pairs)


def test_every_number_of_a_pair_is_where_its_header_says() -> None:
    header, slow, nes = cells(against(*THREE[1:3]).markdown())
    assert header == ["against", "both", "only it", "only other", "difference", "McNemar p", "ratio", "Wilcoxon p"]
    low, high = newcombe_interval(2, 1, 1, 0)
    # Both fooled the first image, after 10 and 30 queries, and the last, after 40 and 60: of four samples, one is the
    # first image twice and one the last. Both differences are negative, as in 1 case of 4 of either sign.
    assert slow == [
        *("Slow", "2", "1", "1", f"+0.0 ({100 * low:+.1f} to {100 * high:+.1f})"),
        *("1.000", "0.56 (0.33 to 0.67)", "0.500"),
    ]
    low, high = newcombe_interval(1, 2, 0, 1)
    assert nes == [
        *("NES", "1", "2", "0", f"+50.0 ({100 * low:+.1f} to {100 * high:+.1f})"),
        *("0.500", "0.11", "1.000"),
    ]


def test_what_cannot_be_said_of_a_pair_is_a_dash() -> None:
    nothing = cells(against(row("B", None, None, 9, None)).markdown())[1]
    assert nothing[1:4] == ["0", "3", "1"]
    assert nothing[6:] == ["-", "-"]


def test_a_pair_in_a_terminal_fits_80_columns() -> None:
    many = [row(name, *[90] * 200, *[None] * 800) for name in ("RandomCorners", "SignHunter")]
    subject = row("Parsimonious", *[3] * 999, None)
    text = str(against(*many, subject=subject))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert re.search(r"RandomCorners +200 +799 +0 +\+79\.9 +<0\.001 +0\.033 +<0\.001", text)
    low, high = newcombe_interval(200, 799, 0, 1)
    assert re.search(rf"\n +\{100 * low:+.1f} to \{100 * high:+.1f} +0\.033-0\.033\n", text)
    assert set(text) - {"─"} <= set(map(chr, range(128)))


def test_signs_of_a_pair_are_mathematical_in_latex() -> None:
    text = against(row("B", 1, 1, 1, None)).latex()
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    low, high = newcombe_interval(2, 1, 1, 0)
    assert len(lines) == 3
    assert "$+$0.0" in lines[1]
    assert rf"{{\scriptsize $-${-100 * low:.1f} to $+${100 * high:.1f}}}" in lines[2]
    assert "$<$0.001" in against(row("B", *[None] * 40), subject=row("A", *[1] * 40)).latex()
    assert r"$\geq$ 33.3\%" in table(row("A", 9, None, None, ended="interrupted")).latex()


# --- names that may be anything -----------------------------------------------------------------------------------

NAMES = [
    "a\nb",
    "a\r\n| x | y |",
    "a\x1b[31mb",
    "a\u2028b",
    "a|b",
    "a\\|b",
    "<b>",
    "*a*",
    "`a`",
    "[a](b)",
    "\udcff",
    "a\0b",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_takes_one_printable_line_in_every_format(name: str) -> None:
    usual, odd = (table(row(each, 9, 8), row("NES", 7, None), relative_to=each) for each in ("usual", name))
    for form in ("markdown", "latex"):
        assert getattr(odd, form)().count("\n") == getattr(usual, form)().count("\n")
    for text in (odd.markdown(), odd.latex(), str(odd)):
        assert text.replace("\n", "").isprintable()
    for line, plain in zip(odd.markdown().splitlines(), usual.markdown().splitlines(), strict=True):
        if plain.startswith("|"):
            assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == plain.count("|")
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`\[]", odd.markdown())


def test_a_name_cannot_leave_a_comment_of_latex() -> None:
    made = Table("title\n\\input{secrets}", ["attack"], [[[Cell("a\n\\input{x}")]]], ["note\r\\input{y}"])
    assert made.latex().splitlines()[:2] == ["% title \\input{secrets}", "% note \\input{y}"]
    assert r"a \textbackslash{}input\{x\}" in made.latex()


# --- narrow terminals -------------------------------------------------------------------------------------------------


def printed(made: Table, width: int) -> str:
    """What a terminal of this width shows."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(made.rich(width))
    return capture.get()


LONG_NAMES = ("NES:imagenet-0.05,samples=50,strict=true", "RandomCorners")
NARROW = {
    "comparison": table(
        *(row(name, 90_123, 100_000, 95_000, None, budget=100_000) for name in LONG_NAMES), relative_to=LONG_NAMES[1]
    ),
    "pairs": against(*(row(name, 90, 80, None, None) for name in LONG_NAMES)),
}


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("made", NARROW.values(), ids=NARROW)
def test_a_narrow_terminal_shows_every_name_and_every_digit(made: Table, width: int) -> None:
    text = printed(made, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    rows = [line for line in text.splitlines() if line.strip()]
    # A name starts at the left, and its folded parts stand below each other there.
    left = "".join(re.match(r"\S*", line)[0] for line in rows)  # type: ignore[index]
    assert all(name in left for name in LONG_NAMES)
    numbers = [cell.text for group in made.groups for each in group for cell in each[1:]]
    numbers += [
        end for group in made.groups for each in group for cell in each if cell.interval for end in cell.interval
    ]
    assert all(re.search(rf"(?<![\d,.]){re.escape(number)}(?![\d,.]*\d)", text) for number in numbers)


def test_a_wide_terminal_does_not_stretch_a_table() -> None:
    assert printed(table(*THREE), 200).splitlines()[1:3] == printed(table(*THREE), 80).splitlines()[1:3]


# --- notebooks --------------------------------------------------------------------------------------------------------


class Rows(HTMLParser):
    """Collects the texts of a table's cells, as a browser would show them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, _: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_html_has_the_cells_of_the_table_and_nothing_that_a_name_brings() -> None:
    name = "<script>alert(1)</script>&"
    made = table(row(name, 9, 8, None), row("NES", 7, None, None))
    parser = Rows()
    parser.feed(made.html())
    assert parser.rows[0] == list(made.headers)
    assert [each[0] for each in parser.rows[1:]] == [name, "NES"]
    assert parser.rows[1][1].startswith("66.7%")
    assert "script" not in parser.tags
