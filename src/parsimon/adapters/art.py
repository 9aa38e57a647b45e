"""The attacks as evasion attacks of the Adversarial Robustness Toolbox: `attack.generate(x, y)`.

    from parsimon.adapters.art import Parsimonious

    attack = Parsimonious(classifier, eps=8 / 255, budget=2000)
    x_adv = attack.generate(x, y)

Images and the radius are in the classifier's `clip_values`, channels first or last as it says. An image that was not
fooled comes back as it was given. The scores of the first images show whether they are logits or probabilities.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.adapters.recipe import KINDS, Recipe, every_attack
from parsimon.core.types import Attack
from parsimon.errors import InputError, require
from parsimon.models.art import ArtModel, format_of
from parsimon.results.result import Result

_attacks = require("art.attacks", "art")
_estimator = require("art.estimators.estimator", "art")
_classifier = require("art.estimators.classification.classifier", "art")
_utils = require("art.utils", "art")

_THEIRS = {"max_iter": "budget"}


class ArtAttack(_attacks.EvasionAttack):  # type: ignore[misc, name-defined]  # its library is not typed here
    """A parsimon attack for ART. A subclass sets its `kind`; your own attack is adapted the same way.

    It takes a classifier, a radius, `targeted`, `preset` and the settings of its kind. Of a run it takes `budget`,
    `loss`, `scores`, `eight_bit`, `seed`, `batch_size`, `in_flight` and `progress`. ART's names `max_iter`, `p_init`,
    `norm` and `verbose` work, too.

    Attributes:
        result: The `parsimon.Result` of the last call, with its queries; None if there was no image to attack in it.
    """

    kind: ClassVar[type[Attack]]
    attack_params: ClassVar = [*_attacks.EvasionAttack.attack_params, "eps", "targeted"]
    _estimator_requirements = (_estimator.BaseEstimator, _classifier.ClassifierMixin)

    def __init__(self, estimator: Any, eps: float = 8 / 255, targeted: bool = False, **settings: Any) -> None:
        super().__init__(estimator=estimator)
        self.eps = eps
        self._targeted = targeted
        self._settings = settings
        self._recipe = Recipe.of(self.kind, settings, _THEIRS)
        self.result: Result | None = None

    def set_params(self, **settings: Any) -> None:
        """Change `eps`, `targeted`, or any other setting."""
        super().set_params(**{name: settings.pop(name) for name in ("eps", "targeted") if name in settings})
        self._settings = {**self._settings, **settings}
        self._recipe = Recipe.of(self.kind, self._settings, _THEIRS)

    def generate(self, x: Any, y: Any = None, **unknown: Any) -> NDArray[np.float32]:
        """Return the images, adversarial where the model was fooled.

        Args:
            x: The images, as the classifier takes them.
            y: The true classes, or, if targeted, those to reach: numbers, or rows with a 1. Without them, the attack
                goes away from what the classifier sees.
            unknown: Nothing; ART's other attacks take a `mask` here.
        """
        if unknown:
            raise InputError(f"generate takes x and y; got {', '.join(unknown)}")
        if y is None and self.targeted:
            raise InputError("a targeted attack needs the classes to reach: generate(x, y)")
        goals = None
        if y is not None:
            classes = self.estimator.nb_classes
            goals = _utils.check_and_transform_label_format(np.asarray(y), classes, return_one_hot=False).reshape(-1)
        model, form = ArtModel(self.estimator), format_of(self.estimator)
        found = self._recipe.run(model, form, x, goals, self.eps, targeted=self.targeted)
        self.result = found.result
        return found.images


__all__ = [*KINDS, "ArtAttack"]
__getattr__ = every_attack(ArtAttack)
