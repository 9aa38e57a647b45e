"""The result of `parsimon.assess_defence`: what a defence buys against attackers who know it, and who do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from parsimon.core.types import Outcome
from parsimon.results.display import Displayed
from parsimon.results.notes import fooled_by_draws, warned
from parsimon.results.result import Comparison, Result
from parsimon.results.rows import Row
from parsimon.results.statistics import interval_of, wilson_interval
from parsimon.results.table import Cell, Table
from parsimon.results.tables import accuracy_cell, number_cell
from parsimon.results.text import percent_ends, radius_text
from parsimon.results.verdict import Verdict

# Attackers, and the attack of a row about several of them. The other attackers are named where they are made.
NO_DEFENCE, UNAWARE, ALL_ATTACKERS, ALL = "no defence", "unaware of it", "all attackers", "(all)"


@dataclass(frozen=True, repr=False)
class DefenceReport(Displayed):
    """Several attackers on one model, without a defence and behind it.

    Attributes:
        defence: The defence, as typed.
        attackers: The runs by what the attacker does. The first one has no defence against it.
        flag_price: Cost of a flagged query, in queries.
        broken: Whether the model classifies no image correctly behind the defence. Its robust accuracy is then 0, and
            no attacker is run.
    """

    defence: str
    attackers: Mapping[str, Comparison]
    flag_price: float
    broken: bool = False

    @property
    def undefended(self) -> Comparison:
        return next(iter(self.attackers.values()))

    @property
    def defended(self) -> dict[str, Comparison]:
        """The runs against the defence."""
        return dict(list(self.attackers.items())[1:])

    @property
    def unfinished(self) -> int:
        """Number of images left unfinished by an interruption, summed over all runs."""
        return sum(each.unfinished for each in self.attackers.values())

    @property
    def verdict(self) -> Verdict:
        """The robust accuracy behind the defence, after all attackers together."""
        if self.broken:
            return self._broken
        runs = list(self.defended.values()) or [self.undefended]  # an interruption may have left nothing else
        clean = runs[0].first.clean
        outcomes = [each for run in runs for result in run.results.values() for each in result.outcomes]
        fooled = {each.index for each in outcomes if each.success}
        correct, images = int(clean.correct.sum()), len(clean.correct)
        attacked = len({each.index for each in outcomes})
        return Verdict.of(attacked - len(fooled), attacked, correct, images, unfinished=self.unfinished > 0)

    @property
    def _broken(self) -> Verdict:
        return Verdict.of(0, 0, 0, len(self.undefended.first.labels), unfinished=False)

    def cost(self, outcome: Outcome) -> float:
        """Return what an attack on one image costs: its queries, with flagged ones at their price."""
        return outcome.charged + (self.flag_price - 1) * (outcome.flagged or 0)

    def table(self) -> Table:
        """Return one row per attacker and attack, for text, Markdown and LaTeX."""
        first, undefended, verdict = self.undefended.first, self.undefended.verdict, self.verdict
        groups = [[_row(*each) for each in self._results(attacker)] for attacker in self.attackers]
        clean = accuracy_cell(self._broken) if self.broken else Cell("-")
        groups.append([[Cell(ALL_ATTACKERS), Cell(ALL), clean, accuracy_cell(verdict), Cell("-"), Cell("-")]])
        notes = [
            f"Robust accuracy without a defence: {undefended}. Behind it, after all attackers: {verdict}.",
            "Mean: queries per fooled image. Mean of all: a failure counts as the budget.",
            "Each accuracy is an upper bound; a better attacker may leave less.",
            "Intervals: 95%; Wilson for accuracies, percentile bootstrap for queries.",
        ]
        if self.broken:
            notes.insert(1, "Behind the defence, the model classifies no image correctly: there is nothing to attack.")
        behind = next((each.first for each in self.defended.values()), first)
        if behind.threat.sampling is not None:
            notes += [fooled_by_draws(behind.threat.sampling), *behind.clean.remarks]
        notes += warned(self.warnings)
        title = f"What {self.defence} buys at eps {radius_text(first.threat.eps)}, {len(first.labels):,} images"
        headers = ["attacker", "attack", "clean", "robust", "mean", "mean of all"]
        return Table(f"{title}, at most {first.budget:,} queries per image", headers, groups, notes)

    def detection_table(self) -> Table | None:
        """Return what a detector saw of each attack; None if nothing watched."""
        groups = [[self._seen(*each) for each in self._results(attacker)] for attacker in self.defended]
        if all(result.summary.flagged is None for name in self.defended for *_, result in self._results(name)):
            return None
        notes = [
            "Flagged: share of attacks with a flagged query. First flag: median number of its first one.",
            "Robust if stopped: the robust accuracy if the first flag ends an attack.",
            f"Cost: mean queries per attacked image; a flagged query counts as {self.flag_price:g}.",
            "A detector sees one history per attacked image, and no other traffic: false alarms are not measured.",
            "Intervals: 95%; Wilson for shares, percentile bootstrap for cost.",
        ]
        headers = ["attacker", "attack", "flagged", "first flag", "robust if stopped", "cost"]
        return Table(f"What {self.defence} flags", headers, groups, notes)

    def _results(self, attacker: str) -> list[tuple[str, str, Result]]:
        return [(attacker, name, result) for name, result in self.attackers[attacker].results.items()]

    def _seen(self, attacker: str, name: str, result: Result) -> list[Cell]:
        outcomes, flags = result.outcomes, result.summary.first_flags
        if not outcomes:
            return [Cell(attacker), Cell(name), *[Cell("-")] * 4]
        correct, images = int(result.clean.correct.sum()), len(result.clean.correct)
        robust = sum(not each.success or each.first_flag is not None for each in outcomes)
        stopped = Verdict.of(robust, len(outcomes), correct, images, unfinished=result.summary.unfinished > 0)
        costs = [self.cost(each) for each in outcomes]
        flagged = wilson_interval(len(flags), len(outcomes))
        return [
            Cell(attacker),
            Cell(name),
            Cell(f"{len(flags) / len(outcomes):.1%}", interval=percent_ends(flagged)),
            number_cell(median(flags) if flags else None, interval_of(flags, np.median)),
            accuracy_cell(stopped),
            number_cell(fmean(costs), interval_of(costs, np.mean)),
        ]

    def tables(self) -> list[Table]:
        """Return the table, and what a detector saw if there is one."""
        seen = self.detection_table()
        return [self.table()] if seen is None else [self.table(), seen]

    def headline(self) -> str:
        """Return the robust accuracy without the defence and behind it, in one sentence."""
        before = f"robust accuracy {self.undefended.verdict} without it"
        return f"{self.defence}: {before}, {self.verdict} behind it after all attackers"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the results, one sentence each. Those of one attacker alone say little about a defence."""
        return self.undefended.warnings

    def rows(self) -> Iterator[Row]:
        """Yield the rows of `to_frame`, one per attacker, attack and given image."""
        for attacker, run in self.attackers.items():
            yield from ({"attacker": attacker, **row} for row in run.rows())

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))


def _row(attacker: str, name: str, result: Result) -> list[Cell]:
    summary, clean = result.summary, result.clean
    correct, images = int(clean.correct.sum()), len(clean.correct)
    return [
        Cell(attacker),
        Cell(name),
        accuracy_cell(Verdict.of(correct, correct, correct, images, unfinished=False)),
        accuracy_cell(Comparison({name: result}).verdict),
        number_cell(summary.mean, summary.mean_interval),
        number_cell(summary.mean_of_all),
    ]
