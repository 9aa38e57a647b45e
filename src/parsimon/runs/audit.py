"""Check a stored run without trusting it: redraw every adversarial image, and query the model once for each.

The ball and the range are checked by definition, and the class by the highest score.

On a random model, every adversarial image is drawn again, as often as in the run. A success near one half then fails by
chance in half of all audits. So it is refuted only if significantly fewer of these draws err than in the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.draws import Purpose, draw_keys
from parsimon.core.model import Model
from parsimon.core.threat import predicted_classes
from parsimon.core.types import Outcome
from parsimon.errors import InputError
from parsimon.results.chance import Drawn
from parsimon.results.result import Comparison, Result
from parsimon.results.statistics import fisher
from parsimon.runs import stored
from parsimon.runs.classify import check_shape, classify, draw_classes
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import begun_evaluations, cell_folder, evaluation_config, is_evaluation
from parsimon.runs.inputs import open_model_for
from parsimon.runs.preflight import check_threat
from parsimon.runs.preparation import goal_classes
from parsimon.runs.verification import in_ball, redraw

SIGNIFICANCE = 0.001  # of the refutations in a run of a random model, all attacked images together
_BATCH = 64  # images, if the run sets no other size


@dataclass(frozen=True)
class AttackAudit:
    """The stored successes of one attack, queried again.

    Attributes:
        queried: Number of successes, each queried once, or drawn as often as in the run if the model is random.
        outside: Images whose adversarial image is outside the ball, or has a pixel outside [0, 1].
        not_fooled: Images whose adversarial image does not fool the model.
        undecided: On a random model, images whose adversarial image errs in at most half of the draws, but not in
            significantly fewer than in the run.
        draws: Draws of each adversarial image; 0 if the model is not random.
    """

    queried: int
    outside: tuple[int, ...]
    not_fooled: tuple[int, ...]
    undecided: tuple[int, ...] = ()
    draws: int = 0

    @property
    def failed(self) -> tuple[int, ...]:
        return tuple(sorted({*self.outside, *self.not_fooled}))

    @property
    def held(self) -> int:
        return self.queried - len({*self.failed, *self.undecided})


@dataclass(frozen=True)
class RunAudit:
    """The audit of one run.

    Attributes:
        folder: The folder of the run.
        model: The name of its model.
        eps: The radius that its images obey.
        attacks: The audit of each attack, by the name of its row.
        unfinished: Number of unfinished images, summed over the attacks; they have no success yet.
        missing: Whether the evaluation needs this run, and it is not there: it was deleted, or has not begun.
    """

    folder: Path
    model: str
    eps: float
    attacks: Mapping[str, AttackAudit]
    unfinished: int
    missing: bool = False

    @property
    def holds(self) -> bool:
        return not self.missing and not any(audit.failed for audit in self.attacks.values())

    @property
    def queried(self) -> int:
        """Number of successes that were queried."""
        return sum(audit.queried for audit in self.attacks.values())


def verify(folder: str | Path, model: Any = None) -> list[RunAudit]:
    """Query every stored adversarial image of a run, or of all runs of an evaluation, once more.

    Args:
        folder: The run, or the evaluation.
        model: The reader's own copy of the model, as `parsimon.attack` takes it; by default the one that the run names.

    Returns:
        The audit of each run. Those that an evaluation lacks come last; they do not hold.

    Raises:
        InputError: If there is no success to query, so that nothing can be verified.
    """
    runs, missing = stored_runs(Path(folder))
    configs = {each: stored.config_of(each) for each in runs}
    names = {config.model: config for config in configs.values()}
    if model is not None and len(names) > 1:
        raise InputError(
            f"{folder} has several models ({', '.join(names)}), so that model cannot stand for all of them"
        )
    images = {configs[each].model: run.first.images for each, run in runs.items()}
    opened = {name: open_model_for(config, images[name], model) for name, config in sorted(names.items())}
    audits = [_audit(each, run, opened[configs[each].model]) for each, run in runs.items()]
    if not any(audit.queried for audit in audits):
        raise InputError(f"there is nothing to verify in {folder}: no attack has fooled the model on any image yet")
    lacking = [RunAudit(each, cell.model, cell.effective_radius, {}, 0, missing=True) for each, cell in missing.items()]
    return [*audits, *lacking]


def stored_runs(folder: Path) -> tuple[dict[Path, Comparison], dict[Path, RunConfig]]:
    """Return the runs in a folder, its own or those of an evaluation, and the settings of those that are missing.

    An evaluation needs no run at a radius where no image is left to attack.
    """
    if not is_evaluation(folder):
        return {folder: stored.load(folder)}, {}
    config = evaluation_config(folder)
    cells = {cell_folder(folder, config, cell): cell for model in config.models for cell in config.cells(model)}
    runs = {}
    for path in cells:
        with suppress(stored.NotBegunError):
            runs[path] = stored.load(path)

    def read(cell: RunConfig, _: Collection[int]) -> Mapping[str, Result]:
        path = cell_folder(folder, config, cell)
        return runs[path].results if path in runs else {}

    if not runs:
        raise stored.NotBegunError(f"{folder} holds no run: the evaluation has not begun, or its runs were deleted")
    found = begun_evaluations(config, read)
    done = {
        cell_folder(folder, config, cell)
        for model, evaluations in found.items()
        for cell, evaluation in zip(config.cells(model), evaluations, strict=True)
        if not evaluation.unfinished
    }
    return runs, {path: cell for path, cell in cells.items() if path not in runs and path not in done}


def goals_of(run: Comparison, config: RunConfig) -> NDArray[np.intp]:
    """Return the class that each image must leave or reach."""
    labels = run.first.labels
    return labels if config.targets is None else goal_classes(config.targets, labels, run.first.clean)


def _audit(folder: Path, run: Comparison, model: Model) -> RunAudit:
    config = stored.config_of(folder)
    goals = goals_of(run, config)
    batch_size = config.batch_size or _BATCH
    tests = sum(len(result.outcomes) for result in run.results.values())
    attacks = {
        name: audit_attack(model, result, goals, batch_size, tests, config.seed) for name, result in run.results.items()
    }
    return RunAudit(folder, config.model, config.effective_radius, attacks, run.unfinished)


def audit_attack(
    model: Model, result: Result, goals: NDArray[np.intp], batch_size: int, tests: int | None = None, seed: int = 0
) -> AttackAudit:
    """Query the successes of one attack.

    Args:
        model: The model.
        result: The attack's result.
        goals: The classes to leave or to reach.
        batch_size: Images per batch.
        tests: On a random model, the number of images that share the significance; None: those of this attack. All that
            were attacked count, and not the successes alone: chance made some of them successes.
        seed: The seed of the run. The draws of an audit are others than in the run.
    """
    threat, columns = result.threat, result.clean.columns
    check_threat(model, threat)
    level = SIGNIFICANCE / max(1, len(result.outcomes) if tests is None else tests)
    queried, outside = 0, []
    not_fooled: list[int] = []
    undecided: list[int] = []
    for batch in redraw(result.images, result.outcomes, threat, batch_size):
        check_shape(model, batch[0].image.shape)
        pixels = np.stack([each.image for each in batch])
        if threat.sampling is None:
            predicted = predicted_classes(classify(model, pixels, batch_size, columns))[:, None]
        else:
            keys = partial(draw_keys, seed, [each.outcome.index for each in batch], Purpose.AUDIT)
            predicted = draw_classes(model, pixels, threat.sampling.draws, keys, batch_size)
        for (outcome, original, image), seen in zip(batch, predicted, strict=True):
            queried += 1
            if not in_ball(original, image, threat):
                outside.append(outcome.index)
            errors = int(np.count_nonzero((seen == goals[outcome.index]) == threat.targeted))
            if 2 * errors > len(seen):
                continue
            refuted = threat.sampling is None or _refuted(outcome, Drawn(errors, len(seen)), level)
            (not_fooled if refuted else undecided).append(outcome.index)
    draws = 0 if threat.sampling is None else threat.sampling.draws
    return AttackAudit(queried, tuple(outside), tuple(not_fooled), tuple(undecided), draws)


def _refuted(outcome: Outcome, fresh: Drawn, level: float) -> bool:
    """Return whether significantly fewer fresh draws err than the run claims, or the run's own draws are no success."""
    claimed = Drawn(outcome.errors, outcome.draws)
    if claimed.draws != fresh.draws or 2 * claimed.errors <= claimed.draws:
        return True
    return fisher((claimed.errors, fresh.errors), (claimed.draws, fresh.draws)) < level
