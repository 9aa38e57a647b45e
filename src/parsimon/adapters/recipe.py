"""The part that adapters share: an attack with the settings of its runs, and the conversion of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon import api
from parsimon.attacks import ATTACKS
from parsimon.attacks.registry import split_settings
from parsimon.core.model import Model
from parsimon.core.types import Attack
from parsimon.errors import InputError, NothingToAttackError, quote
from parsimon.models.image_format import ImageFormat
from parsimon.results.result import Result

KINDS = {kind.__name__: kind for kind in ATTACKS.values()}

_RUN_SETTINGS = (
    *("budget", "loss", "scores", "eight_bit", "until_budget", "seed", "batch_size", "in_flight", "progress", "verify"),
)
_INFINITY = (np.inf, "inf", "Linf")  # how the libraries write the norm


class Found(NamedTuple):
    """The result of a run, in the library's image format."""

    images: NDArray[np.float32]  # adversarial where the model was fooled
    success: NDArray[np.bool_]  # where the goal is reached, by the attack or from the start
    result: Result | None  # None if there was no image to attack


@dataclass(frozen=True)
class Recipe:
    """An attack, and the settings of its runs."""

    attack: Attack
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, kind: type[Attack], given: Mapping[str, Any], theirs: Mapping[str, str]) -> Recipe:
        """Make a recipe from a user's settings: those of the attack, a `preset` of them, and those of the run.

        Args:
            kind: The attack.
            given: The settings by name.
            theirs: The library's names for some of ours.
        """
        settings = {theirs.get(key, key): value for key, value in given.items()}
        norm = settings.pop("norm", np.inf)
        if norm not in _INFINITY:
            raise InputError(f"parsimon attacks in the L-infinity ball, so norm must be inf; got {quote(norm)}")
        if "verbose" in settings:  # progress is shown on a terminal unless it is switched off
            settings["progress"] = None if settings.pop("verbose") else False
        attack, run = split_settings(kind, settings, _RUN_SETTINGS)
        return cls(attack, {"scores": None, **run})

    def run(self, model: Model, form: ImageFormat, images: Any, goals: Any, eps: float, *, targeted: bool) -> Found:
        """Attack a library's images.

        Args:
            model: The model.
            form: How the library keeps the images.
            images: As it keeps them.
            goals: The true classes, or, if targeted, those to reach; None: away from what the model sees.
            eps: The radius in the library's pixels.
            targeted: Whether the goals are classes to reach instead of classes to leave.
        """
        given = np.asarray(images, np.float32)
        labels, targets = ("predicted" if targeted or goals is None else goals), (goals if targeted else None)
        try:
            result = api.attack(
                model,
                form.from_framework(given),
                labels,
                eps / form.span,
                attack=self.attack,
                targets=targets,
                **self.settings,
            )
        except NothingToAttackError:
            return Found(given.copy(), np.ones(len(given), np.bool_), None)
        if result.stopped:  # a loop over batches must end at Ctrl-C, too
            raise KeyboardInterrupt
        at_goal = result.clean.predicted == goals if targeted else ~result.clean.correct
        adversarial = given.copy()
        adversarial[result.success] = form.to_framework(result.adversarial[result.success])
        return Found(adversarial, result.success | at_goal, result)


def every_attack(base: type) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, which makes a subclass of `base` for each attack."""

    @cache
    def adapted(name: str) -> Any:
        if name not in KINDS:
            attacks = ", ".join(KINDS)
            raise AttributeError(f"module {base.__module__!r} has no attribute {name!r}; its attacks are {attacks}")
        kind = KINDS[name]
        return type(name, (base,), {"kind": kind, "__doc__": kind.__doc__, "__module__": base.__module__})

    return adapted
