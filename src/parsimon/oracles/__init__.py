"""The model as the attacker sees it: images in, scores out. Only this package imports a framework."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from parsimon.errors import InputError
from parsimon.oracles.endpoint import HttpOracle, Request
from parsimon.oracles.function import CallableOracle
from parsimon.oracles.named import open_model
from parsimon.oracles.remote import Pace
from parsimon.protocol import Oracle

__all__ = ["CallableOracle", "HttpOracle", "Pace", "Request", "as_oracle"]


def as_oracle(model: Any) -> Oracle:
    """An oracle for a model: the name of a bundled one or of a file (see `open_model`), or an object.

    That is a torch module, an ONNX Runtime session, a Foolbox model, a classifier of the Adversarial Robustness
    Toolbox, a function of numpy images, or an oracle itself.
    """
    if isinstance(model, str):
        return as_oracle(open_model(model))
    if hasattr(model, "namespace") and hasattr(model, "fixed_batch"):
        oracle: Oracle = model
        return oracle
    if _is_a(model, "torch", "nn.Module"):
        from parsimon.oracles.torch import TorchOracle

        return TorchOracle(model)
    if isinstance(model, Path):
        from parsimon.oracles.onnx import OnnxOracle

        return OnnxOracle(model)
    if _is_a(model, "onnxruntime", "InferenceSession"):
        from parsimon.oracles.onnx import SessionOracle

        return SessionOracle(model)
    if _is_a(model, "foolbox", "Model"):
        from parsimon.oracles.foolbox import foolbox_oracle

        return foolbox_oracle(model)
    if _is_a(model, "art", "estimators.classification.classifier.ClassifierMixin"):
        from parsimon.oracles.art import art_oracle

        return art_oracle(model)
    if callable(model):
        return CallableOracle(model)
    raise InputError(
        "the model must be a torch module, the path of an ONNX file, an onnxruntime session, a Foolbox model, an ART "
        f"classifier, or a function from images to scores; got {type(model).__name__}"
    )


def _is_a(model: Any, package: str, name: str) -> bool:
    """Whether the model is of a package's class, without importing the package: it made the model if it did."""
    kind: Any = sys.modules.get(package)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return kind is not None and isinstance(model, kind)
