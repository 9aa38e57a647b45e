"""The model as the attacker sees it: images in, scores out. Only this package imports a framework."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
    """Return a `Model` for a name (see `open_model`) or an object.

    The object may be a torch module, the path of an ONNX file, an ONNX Runtime session or a function of numpy images.
    It may also be a Foolbox model, a classifier of the Adversarial Robustness Toolbox, or a `Model` itself.
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
        from parsimon.models.art import ArtModel

        return ArtModel(model)
    return _function_model(model)


def is_state_dict(model: Any) -> bool:
    """Return whether a mapping holds the weights of a module, by their names, and not models."""
    return isinstance(model, Mapping) and any(
        is_state_dict(value) or (hasattr(value, "shape") and not callable(value)) for value in model.values()
    )


def _function_model(model: Any) -> FunctionModel:
    if is_state_dict(model):
        raise InputError(
            "the model is a state dict, the weights of a module without its code: build the module, load them with "
            "module.load_state_dict(...), and pass the module"
        )
    if hasattr(model, "namespace") and hasattr(model, "fixed_batch"):
        raise InputError(
            f"{type(model).__name__} has the attributes of a model but not its base class: make it a subclass of "
            "parsimon.models.Model"
        )
    if not callable(model):
        raise InputError(
            "the model must be a torch module, the path of an ONNX file, an onnxruntime session, a Foolbox model, an "
            f"ART classifier, or a function from images to scores; got {type(model).__name__}"
        )
    return FunctionModel(model)


def _is_a(model: Any, package: str, name: str) -> bool:
    """Return whether the model is an instance of a package's class, without importing the package."""
    kind: Any = sys.modules.get(package)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return kind is not None and isinstance(model, kind)
