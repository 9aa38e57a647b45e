"""The results table: one attack a row, as text for a terminal, as Markdown, as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from parsimon.protocol import Outcome
from parsimon.summary import Summary, mean_where_both, summarise
from parsimon.threat import Loss, Threat


class Entry(NamedTuple):
    """One attack of a comparison."""

    name: str
    outcomes: Sequence[Outcome]
    budget: int
    loss: Loss
    white_box: bool = False


class Cell(NamedTuple):
    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table before it is written in one format or another. Groups of rows are set apart by a rule."""

    title: str
    headers: Sequence[str]
    groups: Sequence[Sequence[Sequence[Cell]]]
    notes: Sequence[str]

    def rich(self) -> RichTable:
        """For a terminal; fits 80 columns."""
        table = RichTable(
            title=escape(self.title),
            title_justify="left",
            caption=escape("\n".join(self.notes)),
            caption_justify="left",
            # A frame would cost the columns that seven-digit numbers need.
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            min_width=76,  # so that the caption's lines stay whole
        )
        for number, header in enumerate(self.headers):
            # What names an attack is folded if it must be, a number never.
            widest = max(len(row[number].text) for group in self.groups for row in group)
            if header.startswith("on "):
                table.add_column(escape(header), justify="right", width=max(8, widest), overflow="fold")
            elif number:
                table.add_column(escape(header), justify="right", no_wrap=True, min_width=max(len(header), widest))
            else:
                table.add_column(escape(header), overflow="fold")
        for group in self.groups:
            for row in group:
                table.add_row(*(f"[bold]{escape(cell.text)}[/]" if cell.best else escape(cell.text) for cell in row))
            table.add_section()
        return table

    def markdown(self) -> str:
        rows = [
            [f"**{cell.text}**" if cell.best else cell.text for cell in row] for group in self.groups for row in group
        ]
        widths = [max(len(line[column]) for line in (self.headers, *rows)) for column in range(len(self.headers))]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        lines = [_aligned(line, widths) for line in (self.headers, rule, *rows)]
        return "\n".join([f"{self.title}:", "", *(f"| {line} |" for line in lines), "", " ".join(self.notes)])

    def latex(self) -> str:
        """A tabular for the package booktabs; title and notes as comments."""
        groups = [
            [[rf"\textbf{{{_tex(cell.text)}}}" if cell.best else _tex(cell.text) for cell in row] for row in group]
            for group in self.groups
        ]
        headers = [_tex(header) for header in self.headers]
        lines = [headers, *(row for group in groups for row in group)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
        body = "\n\\midrule\n".join(
            "\n".join(rf"{_aligned(row, widths, ' & ')} \\" for row in group) for group in ([headers], *groups)
        )
        comments = "\n".join(f"% {line}" for line in (self.title, *self.notes))
        columns = "l" + "r" * (len(headers) - 1)
        return f"{comments}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}"

    def __str__(self) -> str:
        console = Console(width=80, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self.rich())
        return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def comparison_table(threat: Threat, entries: Sequence[Entry], relative_to: str | None, clean_accuracy: float) -> Table:
    """Attacks on the same images. Those that see gradients come last, and no other is measured against them."""
    summaries = {entry.name: summarise(entry.outcomes, entry.budget) for entry in entries}
    reference = next((entry.outcomes for entry in entries if entry.name == relative_to), None)
    headers = ["attack", "success (95 %)", "mean", "median", "mean of all"]
    if reference is not None:
        headers.insert(4, f"on {relative_to}'s")

    groups = []
    for white_box in (False, True):
        group = [entry for entry in entries if entry.white_box == white_box]
        columns = [
            [Cell(entry.name) for entry in group],
            _column([summaries[entry.name] for entry in group], _success, lambda summary: -summary.success_rate),
            _column([summaries[entry.name].mean for entry in group], _number),
            _column([summaries[entry.name].median for entry in group], _number),
            _column([None if white_box else summaries[entry.name].mean_of_all for entry in group], _number),
        ]
        if reference is not None:
            columns.insert(4, _column([mean_where_both(entry.outcomes, reference) for entry in group], _number))
        if group:
            groups.append(list(zip(*columns, strict=True)))

    goal = "targeted" if threat.targeted else "untargeted"
    images, budget = len(entries[0].outcomes), entries[0].budget
    title = f"eps {threat.eps * 255:.4g}/255, {goal}, {images:,} images, at most {budget:,} queries an image"
    return Table(title, headers, groups, _notes(entries, summaries, relative_to, reference is not None, clean_accuracy))


def _column(
    values: Sequence[Any], write: Callable[[Any], str], rank: Callable[[Any], float] = lambda value: value
) -> list[Cell]:
    """A column's cells; the lowest in rank are the best, where there is anything to compare."""
    ranks = [rank(value) for value in values if value is not None]
    best = min(ranks) if len(ranks) > 1 else None
    return [Cell(write(value), value is not None and rank(value) == best) for value in values]


def _success(summary: Summary) -> str:
    low, high = summary.interval
    at_least = ">= " if summary.unfinished else ""
    return f"{at_least}{summary.success_rate:.1%} ({100 * low:.1f} to {100 * high:.1f})"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _notes(
    entries: Sequence[Entry],
    summaries: dict[str, Summary],
    relative_to: str | None,
    is_relative: bool,
    clean_accuracy: float,
) -> list[str]:
    """What the numbers are taken over, and what they leave out."""
    fooled = {outcome.index for entry in entries for outcome in entry.outcomes if outcome.success}
    under_attack = clean_accuracy * (1 - len(fooled) / max(1, len(entries[0].outcomes)))
    together = "all of these attacks together" if len(entries) > 1 else "this attack"
    notes = [
        f"Accuracy: {clean_accuracy:.1%} clean, {under_attack:.1%} under {together}.",
        "Success: of all attacked (correctly classified) images, with its interval.",
        "Mean and median: queries of the successes.",
        f"Mean of all: a failure counted at the budget of {entries[0].budget:,}.",
    ]
    if is_relative:
        notes.append(f"On {relative_to}'s: mean queries over the images that {relative_to} fooled too.")
    losses = sorted({entry.loss for entry in entries})
    if len(losses) == 1:
        notes.append(f"Loss: {losses[0]}.")
    else:
        named = (f"{loss} ({', '.join(entry.name for entry in entries if entry.loss == loss)})" for loss in losses)
        notes.append(f"Loss: {'; '.join(named)}.")
    for what, count in (
        ("Queries charged", "queries"),
        ("Evaluations not charged", "uncharged"),
        ("Evaluations outside the ball", "outside"),
        ("Evaluations with gradient", "gradients"),
        ("Unfinished images, counted as not fooled so far", "unfinished"),
    ):
        counts = {name: getattr(summary, count) for name, summary in summaries.items()}
        if any(counts.values()):
            notes.append(f"{what}: {', '.join(f'{name} {number:,}' for name, number in counts.items() if number)}.")
    return notes


def _aligned(cells: Sequence[str], widths: Sequence[int], between: str = " | ") -> str:
    first, *others = (
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return between.join([first, *others])


def _tex(text: str) -> str:
    for character in "%&_#$":
        text = text.replace(character, f"\\{character}")
    return text
