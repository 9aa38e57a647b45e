"""Describe an attack and its needs as plain values, for `parsimon attacks` and for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsimon.attacks import ATTACKS
from parsimon.core.docstrings import describe_configurable
from parsimon.core.model import AnswerLevel
from parsimon.core.parsing import kind_named

# What an attack needs of each query, in the words of someone with a model.
NEEDS: Mapping[AnswerLevel, str] = {
    "label": "the predicted class",
    "loss": "one number, which parsimon computes from logits or probabilities",
    "scores": "the logits or probabilities of all classes",
    "gradient": "scores and gradients, which a torch module or an ONNX file gives",
}
NORM = "L-infinity"  # of every ball; see `Threat`


def describe(name: str) -> dict[str, Any]:
    """Return everything about an attack: what it needs, its paper, presets and settings."""
    attack = kind_named(name, "attack", ATTACKS)
    return describe_configurable(name, attack, needs=attack.needs, norm=NORM)
