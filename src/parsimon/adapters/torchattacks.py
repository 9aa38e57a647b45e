"""The attacks as torchattacks' attacks: `attack = Parsimonious(model, eps=8 / 255); attack(images, labels)`.

    from parsimon.adapters.torchattacks import Parsimonious

    attack = Parsimonious(model, eps=8 / 255, budget=2000)
    adversarial = attack(images, labels)

Targeted modes, `set_normalization_used`, `set_device`, `set_model_training_mode` and `save` are torchattacks' own. An
image that was not fooled comes back as it was given.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from parsimon.adapters.recipe import KINDS, Recipe, every_attack
from parsimon.core.types import Attack
from parsimon.errors import InputError, require
from parsimon.models.image_format import ImageFormat
from parsimon.models.torch import TensorModel
from parsimon.results.result import Result

_torchattacks = require("torchattacks", "torchattacks")

_THEIRS = {"n_queries": "budget"}
_ROUNDING = 1e-5  # by which images may leave [0, 1] when their normalisation is undone


class TorchAttack(_torchattacks.attack.Attack):  # type: ignore[misc, name-defined]  # its library is not typed here
    """A parsimon attack for torchattacks. A subclass sets its `kind`; your own attack is adapted the same way.

    It takes a model, a radius, `preset` and the settings of its kind. Of a run it takes `budget`, `loss`, `scores`,
    `eight_bit`, `seed`, `batch_size`, `in_flight` and `progress`. The names of torchattacks, `n_queries`, `p_init`,
    `norm` and `verbose`, work, too.
    """

    kind: ClassVar[type[Attack]]

    def __init__(self, model: Any, eps: float = 8 / 255, **settings: Any) -> None:
        super().__init__(type(self).__name__, model)
        self.eps = eps
        self.supported_mode = ["default", "targeted"]
        self._recipe = Recipe.of(self.kind, settings, _THEIRS)
        self._result: Result | None = None

    @property
    def result(self) -> Result | None:  # a property, since torchattacks prints every attribute
        """The `parsimon.Result` of the last call, with its queries; None if there was no image to attack in it."""
        return self._result

    def forward(self, inputs: Any, labels: Any = None) -> Any:
        """Attack, after torchattacks has undone the normalisation and set the model's mode."""
        if labels is None and not self.targeted:
            raise InputError("an attack needs the true classes: attack(images, labels)")
        device = inputs.device if self.device is None else self.device
        images = inputs.detach().to(device)
        goals = self.get_target_label(images, labels) if self.targeted else labels
        model = TensorModel(self.get_logits, device, images.dtype)
        pixels = images.cpu().float().numpy()
        if pixels.min() >= -_ROUNDING and pixels.max() <= 1 + _ROUNDING:
            pixels = pixels.clip(0, 1)
        found = self._recipe.run(
            model, ImageFormat(), pixels, np.asarray(goals.cpu()), self.eps, targeted=self.targeted
        )
        self._result = found.result
        return images.new_tensor(found.images)


__all__ = [*KINDS, "TorchAttack"]
__getattr__ = every_attack(TorchAttack)
