"""The model as the attacker sees it: images in, scores out. Only this package imports a framework."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from parsimon.core.model import Model
from parsimon.errors import InputError
from parsimon.models.function import FunctionModel
from parsimon.models.memory import keep_freed_memory
from parsimon.models.named import open_model
from parsimon.models.remote.base import RequestPolicy
from parsimon.models.remote.http import HttpModel, Request

__all__ = ["FunctionModel", "HttpModel", "Model", "Request", "RequestPolicy", "as_model", "keep_freed_memory"]


def as_model(model: Any) -> Model:
    """An oracle for a model: the name of a bundled one or of a file (see `open_model`), or an object.

    That is a torch module, an ONNX Runtime session, a Foolbox model, a classifier of the Adversarial Robustness
    Toolbox, a function of numpy images, or an oracle itself.
    """
    if isinstance(model, str):
        return as_model(open_model(model))
    if isinstance(model, Model):
        return model
    if _is_a(model, "torch", "nn.Module"):
        from parsimon.models.torch import TorchModel

        return TorchModel(model)
    if isinstance(model, Path):
        from parsimon.models.onnx import OnnxModel

        return OnnxModel(model)
    if _is_a(model, "onnxruntime", "InferenceSession"):
        from parsimon.models.onnx import SessionModel

        return SessionModel(model)
    if _is_a(model, "foolbox", "Model"):
        from parsimon.models.foolbox import foolbox_model

        return foolbox_model(model)
    if _is_a(model, "art", "estimators.classification.classifier.ClassifierMixin"):
        from parsimon.models.art import art_model

        return art_model(model)
    if hasattr(model, "namespace") and hasattr(model, "fixed_batch"):
        raise InputError(
            f"{type(model).__name__} has the attributes of a model but not its base class: make it a subclass of "
            "parsimon.models.Model"
        )
    if callable(model):
        return FunctionModel(model)
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
