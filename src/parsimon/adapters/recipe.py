"""What the adapters share: an attack with the settings of its runs, and images there and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon import api
from parsimon.attacks import ATTACKS
from parsimon.core.model import Model
from parsimon.core.types import Attack
from parsimon.errors import InputError, NothingToAttackError
from parsimon.models.image_format import ImageFormat
from parsimon.results.result import Result

KINDS = {kind.__name__: kind for kind in ATTACKS.values()}

_OF_A_RUN = ("budget", "loss", "scores", "eight_bit", "seed", "batch_size", "in_flight", "progress")
_INFINITY = (np.inf, "inf", "Linf")  # how the libraries write the norm


class Found(NamedTuple):
    """What a run made of a library's images, as that library keeps images."""

    images: NDArray[np.float32]  # those that were fooled as their adversarial ones
    success: NDArray[np.bool_]  # where the goal is reached, by an attack or from the start
    result: Result | None  # None where there was no image to attack


@dataclass(frozen=True)
class Recipe:
    """An attack, and the settings of its runs."""

    attack: Attack
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, kind: type[Attack], given: Mapping[str, Any], theirs: Mapping[str, str]) -> Recipe:
        """From what a user gave: the attack's own settings, a `preset` of them, those of a run.

        Args:
            kind: The attack.
            given: The settings by name.
            theirs: The library's names for some of ours.
        """
        own = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # every attack is a dataclass
        of_attack: dict[str, Any] = {}
        of_run: dict[str, Any] = {"scores": None}
        preset = None
        for key, value in given.items():
            name = theirs.get(key, key)
            if name in own:
                of_attack[name] = value
            elif name in _OF_A_RUN:
                of_run[name] = value
            elif key == "preset":
                preset = value
            elif key == "verbose":  # a line of progress is shown to a terminal, unless nobody wants it
                of_run["progress"] = None if value else False
            elif key == "norm":
                if value not in _INFINITY:
                    raise InputError(f"parsimon attacks in the L-infinity ball, so norm can only be inf; got {value!r}")
            else:
                known = ", ".join([*own, "preset", *_OF_A_RUN])
                raise InputError(f"{kind.__name__} has the settings {known}; got {key!r}")
        return cls(kind(**of_attack) if preset is None else kind.preset(preset, **of_attack), of_run)

    def run(self, oracle: Model, form: ImageFormat, images: Any, goals: Any, eps: float, *, targeted: bool) -> Found:
        """Attack a library's images.

        Args:
            oracle: The model.
            form: How the library keeps the images.
            images: As it keeps them.
            goals: The true classes, or, if targeted, those to reach; None: away from what the model sees.
            eps: The radius in the library's pixels.
            targeted: Whether the goals are to be reached.
        """
        given = np.asarray(images, np.float32)
        labels, targets = ("predicted" if targeted or goals is None else goals), (goals if targeted else None)
        try:
            result = api.attack(
                oracle,
                form.from_framework(given),
                labels,
                eps / form.span,
                attack=self.attack,
                targets=targets,
                **self.settings,
            )
        except NothingToAttackError:
            return Found(given.copy(), np.ones(len(given), np.bool_), None)
        if result.summary.unfinished:  # a loop over batches must end at Ctrl-C, too
            raise KeyboardInterrupt
        at_goal = result.clean.predicted == goals if targeted else ~result.clean.correct
        adversarial = given.copy()
        adversarial[result.success] = form.to_framework(result.adversarial[result.success])
        return Found(adversarial, result.success | at_goal, result)


def every_attack(base: type) -> Callable[[str], Any]:
    """Its module's `__getattr__`, which makes a subclass of `base` for the attack that is asked for."""

    @cache
    def adapted(name: str) -> Any:
        if name not in KINDS:
            attacks = ", ".join(KINDS)
            raise AttributeError(f"module {base.__module__!r} has no attribute {name!r}; its attacks are {attacks}")
        kind = KINDS[name]
        return type(name, (base,), {"kind": kind, "__doc__": kind.__doc__, "__module__": base.__module__})

    return adapted
