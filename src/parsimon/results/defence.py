"""The result of `parsimon.assess_defence`: what a defence buys against attackers who know it, and who do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np

from parsimon.core.types import Outcome
from parsimon.results.chance import Chance, worst_draws
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
_BOUND = "Each accuracy is an upper bound; a better attacker may leave less."
_RANDOM_BOUND = "A better attacker may leave less. So may chance, on images with an error rate near 50%."
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
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the assessment, even if every image of its runs is finished."""
        return any(each.stopped for each in self.attackers.values())

    @property
    def finished(self) -> bool:
        """Whether every attacker is finished."""
        return not (self.unfinished or self.stopped)

    @property
    def verdict(self) -> Verdict:
        """The robust accuracy behind the defence, after all attackers together.

        An image is robust if every run behind the defence classifies it correctly, and no attacker fooled it. Without
        such a run nothing is known: a defence may help, so the accuracy of the undefended model is no bound.
        """
        images = len(self.undefended.first.labels)
        if self.broken:
            return Verdict.of(0, 0, 0, images, unfinished=False)
        if not self.defended:
            return Verdict(1.0, None, "at_most", images, 0)
        runs = self.defended.values()
        # The runs on a model with its own randomness draw the clean images anew, and may differ about them.
        correct = np.all([run.first.clean.correct for run in runs], axis=0)
        attacked = correct & np.all([run.first.attacked for run in runs], axis=0)
        fooled = np.any([result.success for run in runs for result in run.results.values()], axis=0)
        robust, tried, right = (int(mask.sum()) for mask in (attacked & ~fooled, attacked, correct))
        return Verdict.of(robust, tried, right, images, unfinished=not self.finished)

    @property
    def _known(self) -> bool:
        """Whether anything is known about the model behind the defence."""
        return self.broken or bool(self.defended)

    @property
    def _behind(self) -> str:
        """The robust accuracy behind the defence, in words."""
        if not self._known:
            return "Behind it, nothing is known yet"
        return f"Behind it{', after all attackers' * self.finished}: {self.verdict}"

    @cached_property
    def chance(self) -> Chance | None:
        """The undecided images behind the defence, after all attackers; None if nothing was drawn there."""
        runs = self.defended.values()
        attacks = [result.outcomes for run in runs for result in run.results.values() if result.random]
        return Chance(len(attacks), worst_draws(attacks), None) if attacks else None

    def cost(self, outcome: Outcome) -> float:
        """Return what an attack on one image costs: its queries, with flagged ones at their price."""
        return outcome.charged + (self.flag_price - 1) * (outcome.flagged or 0)

    def table(self) -> Table:
        """Return one row per attacker and attack, for text, Markdown and LaTeX."""
        first = self.undefended.first
        groups = [[_row(*each) for each in self._results(attacker)] for attacker in self.attackers]
        clean = accuracy_cell(self.verdict) if self.broken else Cell("-")
        robust = accuracy_cell(self.verdict) if self._known else Cell("-")
        groups.append([[Cell(ALL_ATTACKERS), Cell(ALL), clean, robust, Cell("-"), Cell("-")]])
        behind = next((each.first for each in self.defended.values()), first)
        notes = [
            f"Robust accuracy without a defence: {self.undefended.verdict}. {self._behind}.",
            "Mean: queries per fooled image. Mean of all: a failure counts as the budget.",
            _RANDOM_BOUND if behind.random else _BOUND,
            "Intervals: 95%; Wilson for accuracies, percentile bootstrap for queries.",
        ]
        if self.broken:
            notes.insert(1, "Behind the defence, the model classifies no image correctly: there is nothing to attack.")
        if behind.threat.sampling is not None:
            notes += [fooled_by_draws(behind.threat.sampling), *behind.clean.remarks]
        notes += [] if self.chance is None else self.chance.notes()
        notes += warned(self.warnings)
        radius = radius_text(first.threat.effective_eps)
        title = f"What {self.defence} buys at eps {radius}, {len(first.labels):,} images"
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
        before = f"{self.defence}: robust accuracy {self.undefended.verdict} without it"
        if not self._known:
            return f"{before}; nothing is known behind it yet"
        return f"{before}, {self.verdict} behind it{' after all attackers' * self.finished}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the results, one sentence each. Those of some attackers only begin with their names."""
        found: dict[str, list[str]] = {}
        for attacker, run in self.attackers.items():
            for warning in run.warnings:
                found.setdefault(warning, []).append(attacker)
        return tuple(
            warning if len(names) == len(self.attackers) else f"{', '.join(names)}: {warning}"
            for warning, names in found.items()
        )

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
