"""The attacks as Foolbox attacks: `attack(fmodel, images, labels, epsilons=8 / 255)`.

    from parsimon.adapters.foolbox import Parsimonious

    attack = Parsimonious(budget=2000)
    raw, clipped, success = attack(fmodel, images, labels, epsilons=[4 / 255, 8 / 255])

Images and radii are in the model's bounds. `raw` and `clipped` are the same, since no image outside the ball is
returned. An image that was not fooled is returned unchanged. As with Foolbox's own attacks, an image that the model
misclassifies from the start is a success.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from parsimon.adapters.recipe import KINDS, Recipe, every_attack
from parsimon.core.engine import checked_scores
from parsimon.core.threat import predicted_classes
from parsimon.core.types import Attack
from parsimon.errors import InputError, require
from parsimon.models.foolbox import foolbox_model, format_of
from parsimon.results.result import Result

_foolbox = require("foolbox", "foolbox")
_tensors = require("eagerpy", "foolbox")


class FoolboxAttack(_foolbox.attacks.base.AttackWithDistance):  # type: ignore[misc, name-defined]  # not typed
    """A parsimon attack for Foolbox. A subclass sets its `kind`; your own attack is adapted the same way.

    It takes the settings of its kind, `preset`, and those of a run: `budget`, `loss`, `scores`, `eight_bit`, `seed`,
    `batch_size`, `in_flight`, `progress`.

    Attributes:
        results: The `parsimon.Result` of each radius above 0 of the last call, with its queries; None where there was
            no image to attack.
    """

    kind: ClassVar[type[Attack]]
    distance = _foolbox.distances.linf

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._recipe = Recipe.of(self.kind, settings, {})
        self.results: list[Result | None] = []

    def __call__(self, model: Any, inputs: Any, criterion: Any, *, epsilons: Any, **unknown: Any) -> Any:
        """Return raw images, clipped images and successes: one entry per radius, or one alone."""
        if unknown:
            raise InputError(f"a call takes a model, inputs, a criterion and epsilons; got {', '.join(unknown)}")
        images, restore = _tensors.astensor_(inputs)
        goals, targeted = _goals(criterion)
        wrapped, form = foolbox_model(model, like=images), format_of(model)
        several = isinstance(epsilons, Iterable)
        self.results, adversarial, success = [], [], []
        for eps in epsilons if several else [epsilons]:
            if eps is None:
                raise InputError("these attacks need a radius, and look for no smallest one: epsilons must be numbers")
            if eps == 0:  # as in many a list of radii: the clean images
                adversarial.append(images)
                seen = predicted_classes(checked_scores(model(images).numpy(), len(images)))
                success.append(_tensors.from_numpy(images, (seen == goals) == targeted))
                continue
            found = self._recipe.run(wrapped, form, images.numpy(), goals, eps, targeted=targeted)
            adversarial.append(_tensors.from_numpy(images, found.images))
            success.append(_tensors.from_numpy(images, found.success))
            self.results.append(found.result)
        points = [restore(each) for each in adversarial]
        if several:
            return points, list(points), restore(_tensors.stack(success))
        return points[0], points[0], restore(success[0])

    def repeat(self, times: int) -> Any:
        """Refuse: the same seed would find the same again."""
        raise InputError(f"to repeat this attack {times} times finds nothing new: raise its budget, or change its seed")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self._settings.items())})"


def _goals(criterion: Any) -> tuple[Any, bool]:
    """Return the classes of a criterion, and whether they are targets."""
    if isinstance(criterion, _foolbox.criteria.TargetedMisclassification):
        return criterion.target_classes.numpy(), True
    if isinstance(criterion, _foolbox.criteria.Misclassification):
        return criterion.labels.numpy(), False
    if isinstance(criterion, _foolbox.criteria.Criterion):
        raise InputError(
            f"the criterion must be Misclassification or TargetedMisclassification; got {type(criterion).__name__}"
        )
    return _tensors.astensor(criterion).numpy(), False


__all__ = [*KINDS, "FoolboxAttack"]
__getattr__ = every_attack(FoolboxAttack)
