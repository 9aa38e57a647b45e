"""parsimon: how robust is an image classifier to someone who can only query it, and how many queries does that take?

    import parsimon

    result = parsimon.attack(model, images, labels, eps=8 / 255)
    print(result)

For evaluating models that one owns or is permitted to test.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from parsimon.version import __version__ as __version__

if TYPE_CHECKING:
    from parsimon import zoo
    from parsimon.api import assess_defence, attack, check, compare, evaluate
    from parsimon.attacks import (
        ADBA,
        NES,
        PGD,
        Bandits,
        Haggle,
        HopSkipJump,
        Parsimonious,
        RandomCorners,
        RayS,
        Scatter,
        SignFlip,
        SignHunter,
        SimBA,
        Square,
        Thrift,
    )
    from parsimon.core.threat import Sampling, Threat
    from parsimon.core.types import Attack, Outcome
    from parsimon.errors import InputError, MissingExtraError, ModelError, ParsimonError
    from parsimon.results.defence import DefenceReport
    from parsimon.results.evaluation import Evaluation, EvaluationGrid
    from parsimon.results.result import Comparison, Result

__all__ = [
    "ADBA",
    "NES",
    "PGD",
    "Attack",
    "Bandits",
    "Comparison",
    "DefenceReport",
    "Evaluation",
    "EvaluationGrid",
    "Haggle",
    "HopSkipJump",
    "InputError",
    "MissingExtraError",
    "ModelError",
    "Outcome",
    "ParsimonError",
    "Parsimonious",
    "RandomCorners",
    "RayS",
    "Result",
    "Sampling",
    "Scatter",
    "SignFlip",
    "SignHunter",
    "SimBA",
    "Square",
    "Threat",
    "Thrift",
    "assess_defence",
    "attack",
    "check",
    "compare",
    "evaluate",
    "zoo",
]

# Where each public name lives. They are imported when they are first used, so that the command can import this package
# before it is ready for Ctrl-C.
_HOMES = {
    "api": ("assess_defence", "attack", "check", "compare", "evaluate"),
    "attacks": (
        *("ADBA", "NES", "PGD", "Bandits", "Haggle", "HopSkipJump", "Parsimonious", "RandomCorners"),
        *("RayS", "Scatter", "SignFlip", "SignHunter", "SimBA", "Square", "Thrift"),
    ),
    "errors": ("InputError", "MissingExtraError", "ModelError", "ParsimonError"),
    "results.defence": ("DefenceReport",),
    "results.evaluation": ("Evaluation", "EvaluationGrid"),
    "results.result": ("Comparison", "Result"),
    "core.types": ("Attack", "Outcome"),
    "core.threat": ("Sampling", "Threat"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        globals()[name] = value = getattr(import_module(f"parsimon.{_HOME_OF[name]}"), name)
        return value
    if not name.startswith("_"):
        try:
            return import_module(f"parsimon.{name}")  # a module of this package, as in parsimon.zoo.images()
        except ModuleNotFoundError as error:
            if error.name != f"parsimon.{name}":
                raise
    raise AttributeError(f"module 'parsimon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
