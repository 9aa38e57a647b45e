"""An ONNX model evaluated with torch operations, for its gradients."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import onnx
import torch
from torch import Tensor, nn

from parsimon.errors import ModelError
from parsimon.models.chunks import call_in_chunks
from parsimon.models.onnx_operators import BEFORE_13, OPERATORS, Operator


class _Step(NamedTuple):
    """A node of the graph."""

    kind: str
    operator: Operator
    inputs: Sequence[str]
    attributes: dict[str, Any]
    outputs: Sequence[str]
    last_used: Sequence[str]  # values that no later node reads


class OnnxModule(nn.Module):
    """The part of an ONNX graph that its first output depends on, in evaluation mode.

    Floating-point constants become frozen float32 parameters, so that `double` and `to` move them. The other constants
    are integers, such as shapes.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        self._output = graph.output[0].name
        self._steps, needed = _steps(model)
        constants = {each.name: _tensor(each) for each in graph.initializer}
        constants |= {node.output[0]: _constant(node) for node in graph.node if node.op_type == "Constant"}
        inputs = [each for each in graph.input if each.name not in constants]
        self._inputs = [each.name for each in inputs]
        self._images_per_call = inputs[0].type.tensor_type.shape.dim[0].dim_value or None  # 0: any number
        read = {name: tensor for name, tensor in constants.items() if name in needed}
        weights = {name: tensor.float() for name, tensor in read.items() if tensor.is_floating_point()}
        self._integers = {name: tensor for name, tensor in read.items() if name not in weights}
        self._names = list(weights)
        self._weights = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in weights.values())
        self.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of any number of images, even if the graph has a fixed batch size."""
        size = self._images_per_call
        scores: Tensor = self.evaluate(images) if size is None else call_in_chunks(self.evaluate, images, size, torch)
        return scores

    def evaluate(self, *inputs: Tensor) -> Tensor:
        """Return the first output for the graph's inputs."""
        values: dict[str, Any] = {
            "": None,  # an omitted input
            **self._integers,
            **dict(zip(self._names, self._weights, strict=True)),
            **dict(zip(self._inputs, inputs, strict=True)),
        }
        for step in self._steps:
            try:
                result = step.operator(*(values[name] for name in step.inputs), **step.attributes)
            except NotImplementedError as error:
                raise _unknown(f"{step.kind} {error}") from error
            values |= zip(step.outputs, [result] if isinstance(result, Tensor) else result, strict=False)
            for name in step.last_used:
                values.pop(name, None)
        scores: Tensor = values[self._output]
        return scores


def _steps(model: onnx.ModelProto) -> tuple[list[_Step], set[str]]:
    """Return the nodes that the first output needs, in order, and the names of their inputs."""
    (version,) = (each.version for each in model.opset_import if each.domain in {"", "ai.onnx"})
    operators = OPERATORS | (BEFORE_13 if version < 13 else {})
    steps, missing = [], set()
    needed = {model.graph.output[0].name}
    for node in reversed(model.graph.node):
        if node.op_type == "Constant" or needed.isdisjoint(node.output):
            continue
        kind = node.op_type if node.domain in {"", "ai.onnx"} else f"{node.domain}.{node.op_type}"
        if kind not in operators:
            missing.add(kind)
        elif kind != "Split" and not needed.isdisjoint(node.output[1:]):
            missing.add(f"{kind} with more than one output")
        else:
            attributes = {each.name: _value(each) for each in node.attribute}
            try:
                inspect.signature(operators[kind]).bind(*node.input, **attributes)
            except TypeError as error:
                missing.add(f"{kind} ({error})")
            last_used = {*node.input, *node.output} - needed - {""}
            # Tuples: the file's own lists would keep all of it in memory.
            inputs, outputs = tuple(node.input), tuple(node.output)
            steps.append(_Step(kind, operators[kind], inputs, attributes, outputs, sorted(last_used)))
        needed.update(node.input)
    if missing:
        raise _unknown(", ".join(sorted(missing)))
    return steps[::-1], needed


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _tensor(value)
    return value.decode() if isinstance(value, bytes) else value


def _constant(node: onnx.NodeProto) -> Tensor:
    """Return the value of a Constant node, which is its only attribute."""
    return torch.as_tensor(_value(node.attribute[0]))


def _tensor(stored: onnx.TensorProto) -> Tensor:
    return torch.tensor(onnx.numpy_helper.to_array(stored))


def _unknown(what: str) -> ModelError:
    return ModelError(f"the gradients of this ONNX model are unknown, because of {what}: pass it as a torch module")
