"""parsimon: how robust is an image classifier to someone who can only query it, and how many queries does that take?

    import parsimon

    result = parsimon.attack(model, images, labels, eps=8 / 255)
    print(result)

For evaluating models that one owns or is permitted to test.
"""

from parsimon import zoo
from parsimon.api import attack, compare, evaluate
from parsimon.attacks import NES, PGD, Bandits, Parsimonious, RandomCorners, SignHunter, SimBA, Square, Thrift
from parsimon.errors import InputError, MissingExtraError, ModelError, ParsimonError
from parsimon.evaluation import Evaluation
from parsimon.protocol import Attack, Outcome
from parsimon.result import Comparison, Result
from parsimon.threat import Threat

__version__ = "0.2.0"

__all__ = [
    "NES",
    "PGD",
    "Attack",
    "Bandits",
    "Comparison",
    "Evaluation",
    "InputError",
    "MissingExtraError",
    "ModelError",
    "Outcome",
    "ParsimonError",
    "Parsimonious",
    "RandomCorners",
    "Result",
    "SignHunter",
    "SimBA",
    "Square",
    "Threat",
    "Thrift",
    "attack",
    "compare",
    "evaluate",
    "zoo",
]
