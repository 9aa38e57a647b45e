"""The model as the attacker sees it: images in, scores out. Only this package imports a framework."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

from parsimon.errors import InputError
from parsimon.oracles.callable import CallableOracle
from parsimon.protocol import Oracle

__all__ = ["CallableOracle", "as_oracle"]


def as_oracle(model: Any) -> Oracle:
    """An oracle for a torch module, an ONNX file or session, a function of numpy images, or an oracle itself."""
    if hasattr(model, "namespace") and hasattr(model, "fixed_batch"):
        oracle: Oracle = model
        return oracle
    if isinstance(model, str | Path):
        from parsimon.oracles.onnx import OnnxOracle

        return OnnxOracle(model)
    if _is_a(model, "torch", "nn.Module"):
        from parsimon.oracles.torch import TorchOracle

        return TorchOracle(model)
    if _is_a(model, "onnxruntime", "InferenceSession"):
        from parsimon.oracles.onnx import OnnxOracle

        return OnnxOracle(model)
    if builtins.callable(model):  # the bare name is the submodule's here
        return CallableOracle(model)
    raise InputError(
        "the model must be a torch module, the path of an ONNX file, an onnxruntime session, or a function "
        f"from images to scores; got {type(model).__name__}"
    )


def _is_a(model: Any, package: str, name: str) -> bool:
    """Whether the model is of a package's class, without importing the package: it made the model if it did."""
    kind: Any = sys.modules.get(package)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return kind is not None and isinstance(model, kind)
