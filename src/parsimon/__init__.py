"""parsimon: how robust is an image classifier to someone who can only query it, and how many queries does that take?

    import parsimon

    result = parsimon.attack(model, images, labels, eps=8 / 255)
    print(result)

For evaluating models that one owns or is permitted to test.
"""

from parsimon import zoo
from parsimon.api import Result, attack
from parsimon.attacks import Parsimonious
from parsimon.errors import InputError, MissingExtraError, ModelError, ParsimonError
from parsimon.protocol import Outcome
from parsimon.threat import Threat

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "MissingExtraError",
    "ModelError",
    "Outcome",
    "ParsimonError",
    "Parsimonious",
    "Result",
    "Threat",
    "attack",
    "zoo",
]
