"""ONNX operators as torch functions: those of ordinary image classifiers.

A function takes its operator's inputs by position and its attributes by their names in the specification. What is an
attribute in old versions and an input in new ones may come either way, as a list or as a tensor. Second outputs are not
given, and what a function cannot do is a NotImplementedError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own convention)

Operator = Callable[..., Any]  # of tensors: to a tensor, or to several where it has several outputs
Sizes = Sequence[int]
Numbers = Sequence[int] | Tensor


def _list(numbers: Numbers) -> list[int]:
    found: list[int] = numbers.tolist() if isinstance(numbers, Tensor) else list(numbers)
    return found


# --- windows that go over pixels ------------------------------------------------------------------------------------


class _Window:
    """The positions of a kernel: its strides, dilations, and the padding before and behind each side."""

    def __init__(
        self,
        sides: Sizes,
        kernel: Sizes,
        strides: Sizes,
        pads: Sizes,
        dilations: Sizes,
        auto_pad: str,
        ceil_mode: int = 0,
    ) -> None:
        count = len(kernel)
        self.strides, self.dilations = list(strides) or [1] * count, list(dilations) or [1] * count
        self.before, self.behind = list(pads[:count]) or [0] * count, list(pads[count:]) or [0] * count
        self.overhang = [0] * count  # how far the last window then reaches beyond that
        for axis, (side, stride) in enumerate(zip(sides, self.strides, strict=True)):
            extent = self.dilations[axis] * (kernel[axis] - 1) + 1
            if auto_pad.startswith("SAME"):
                total = max(0, (math.ceil(side / stride) - 1) * stride + extent - side)
                self.before[axis] = (total + 1) // 2 if auto_pad == "SAME_LOWER" else total // 2
                self.behind[axis] = total - self.before[axis]
            elif ceil_mode:
                padded = self.before[axis] + side + self.behind[axis]
                windows = math.ceil((padded - extent) / stride) + 1
                if (windows - 1) * stride >= self.before[axis] + side:  # none starts behind the picture
                    windows -= 1
                self.overhang[axis] = (windows - 1) * stride + extent - padded

    def padded(self, x: Tensor, value: float) -> Tensor:
        return _padded(x, self.before, self.behind, value)

    def hung_over(self, x: Tensor, value: float) -> Tensor:
        return _padded(x, [0] * len(self.overhang), self.overhang, value)


def _padded(x: Tensor, before: Sizes, behind: Sizes, value: float) -> Tensor:
    return F.pad(x, _interleaved(before, behind), value=value) if any(before) or any(behind) else x


def _interleaved(before: Sizes, behind: Sizes) -> list[int]:
    """Order paddings as torch does: the last side first."""
    return [pad for pair in zip(reversed(before), reversed(behind), strict=True) for pad in pair]


def _conv(  # noqa: PLR0913  (the attributes of the ONNX operator)
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_shape: Sizes = (),  # the weight has it
    strides: Sizes = (),
    pads: Sizes = (),
    dilations: Sizes = (),
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:
    del kernel_shape
    window = _Window(x.shape[2:], weight.shape[2:], strides, pads, dilations, auto_pad)
    padding, none = window.before, [0] * len(window.before)
    if window.before != window.behind:
        x, padding = window.padded(x, 0.0), none
    return torch.convolution(x, weight, bias, window.strides, padding, window.dilations, False, none, group)


def _max_pool(
    x: Tensor,
    *,
    kernel_shape: Sizes,
    strides: Sizes = (),
    pads: Sizes = (),
    dilations: Sizes = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,  # of the second output
) -> Tensor:
    del storage_order
    window = _Window(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[len(kernel_shape)]
    padded = window.hung_over(window.padded(x, -math.inf), -math.inf)
    return pool(padded, list(kernel_shape), window.strides, 0, window.dilations)


def _average_pool(
    x: Tensor,
    *,
    kernel_shape: Sizes,
    strides: Sizes = (),
    pads: Sizes = (),
    dilations: Sizes = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Tensor:
    if any(dilation != 1 for dilation in dilations):
        raise NotImplementedError("with dilations")
    window = _Window(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[len(kernel_shape)]
    # The mean of a window, over the part of it that counts.
    values, counts = window.padded(x, 0.0), window.padded(torch.ones_like(x[:1, :1]), float(count_include_pad))
    mean, part = (pool(window.hung_over(each, 0.0), list(kernel_shape), window.strides) for each in (values, counts))
    return mean / part


# --- shapes ---------------------------------------------------------------------------------------------------------


def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    return x.reshape(math.prod(x.shape[:axis]), -1)


def _reshape(x: Tensor, shape: Numbers, *, allowzero: int = 0) -> Tensor:
    kept = None if allowzero else 0
    return x.reshape([x.shape[axis] if side == kept else side for axis, side in enumerate(_list(shape))])


def _squeeze(x: Tensor, axes: Numbers | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(_list(axes)))


def _unsqueeze(x: Tensor, axes: Numbers) -> Tensor:
    added = _list(axes)
    return reduce(torch.unsqueeze, sorted(axis % (x.ndim + len(added)) for axis in added), x)


def _transpose(x: Tensor, *, perm: Sizes = ()) -> Tensor:
    return x.permute(tuple(perm) or tuple(reversed(range(x.ndim))))


def _concat(*parts: Tensor, axis: int) -> Tensor:
    return torch.cat(parts, axis)


def _expand(x: Tensor, shape: Numbers) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, _list(shape)))


def _shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(x.shape[start:end], dtype=torch.int64)


def _constant_of_shape(shape: Numbers, *, value: Tensor | None = None) -> Tensor:
    return torch.full(_list(shape), 0.0) if value is None else value.expand(_list(shape))


def _slice(
    x: Tensor, starts: Numbers, ends: Numbers, axes: Numbers | None = None, steps: Numbers | None = None
) -> Tensor:
    first, last = _list(starts), _list(ends)
    along = range(len(first)) if axes is None else _list(axes)
    by = [1] * len(first) if steps is None else _list(steps)
    for axis, *cut in zip(along, first, last, by, strict=True):
        kept = range(*slice(*cut).indices(x.shape[axis]))  # torch has no steps backwards
        x = x.index_select(axis, torch.tensor(kept, dtype=torch.int64, device=x.device))
    return x


def _gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.ndim
    found = x.index_select(axis, (indices % x.shape[axis]).flatten().to(x.device))
    return found.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _split(x: Tensor, split: Numbers | None = None, *, axis: int = 0, num_outputs: int = 0) -> Sequence[Tensor]:
    if split is None and not num_outputs:
        raise NotImplementedError("without the sizes of the parts")
    return torch.split(x, math.ceil(x.shape[axis] / num_outputs) if split is None else _list(split), axis)


def _pad(
    x: Tensor,
    pads: Numbers,
    value: float | Tensor | None = None,
    axes: Numbers | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    sizes, along = _list(pads), range(x.ndim) if axes is None else _list(axes)
    before, behind = [0] * x.ndim, [0] * x.ndim
    for axis, less, more in zip(along, sizes[: len(along)], sizes[len(along) :], strict=True):
        before[axis], behind[axis] = less, more
    if mode == "constant":
        return _padded(x, before, behind, 0.0 if value is None else float(value))
    if any(before[:2]) or any(behind[:2]):
        raise NotImplementedError(f"of more than pixels, in mode {mode}")
    modes = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    return F.pad(x, _interleaved(before[2:], behind[2:]), mode=modes[mode])


# --- numbers --------------------------------------------------------------------------------------------------------


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def _clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002  (the specification's names)
    return x if min is None and max is None else x.clamp(min, max)


def _cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    """To a type by its number in the format. Real numbers stay in the precision that they have."""
    del saturate  # of types that are none of these
    if to in {1, 10, 11, 16}:
        return x if x.is_floating_point() else x.float()
    kinds = {6: torch.int32, 7: torch.int64, 9: torch.bool}
    if to not in kinds:
        raise NotImplementedError(f"to type number {to}")
    return x.to(kinds[to])


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (the specification's names)
    transB: int = 0,  # noqa: N803
) -> Tensor:
    left, right = a.T if transA else a, b.T if transB else b
    return alpha * (left @ right) if c is None else torch.addmm(c, left, right, alpha=alpha, beta=beta)


def _batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor:
    del momentum
    if training_mode:
        raise NotImplementedError("in training mode")
    return F.batch_norm(x, mean, variance, scale, bias, eps=epsilon)


def _layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    del stash_type  # the precision of the mean
    return F.layer_norm(x, x.shape[axis:], scale, bias, epsilon)


def _range(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    count = max(0, math.ceil((limit.item() - start.item()) / delta.item()))
    return start + delta * torch.arange(count, dtype=start.dtype)


def _reduction(function: Callable[..., Tensor]) -> Operator:
    def reduced(x: Tensor, axes: Numbers | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        along = [] if axes is None else _list(axes)
        if not along and noop_with_empty_axes:
            return x
        return function(x, dim=along or list(range(x.ndim)), keepdim=bool(keepdims))

    return reduced


def _dropout(x: Tensor, ratio: Any = None, training_mode: Any = None, *, seed: int = 0) -> Tensor:
    del ratio, seed
    if training_mode is not None and bool(training_mode):
        raise NotImplementedError("in training mode")
    return x


def _matrices(operator: Operator) -> Operator:
    """As it was before version 13: all axes from the given one on are one."""
    return lambda x, *, axis=1: operator(_flatten(x, axis=axis)).reshape(x.shape)


OPERATORS: dict[str, Operator] = {
    # Numbers.
    "Abs": lambda x: x.abs(),
    "Add": lambda a, b: a + b,
    "Cast": _cast,
    "Clip": _clip,
    "Div": _divide,
    "Equal": lambda a, b: a == b,
    "Erf": lambda x: x.erf(),
    "Exp": lambda x: x.exp(),
    "Greater": lambda a, b: a > b,
    "Less": lambda a, b: a < b,
    "Log": lambda x: x.log(),
    "Max": lambda *all: reduce(torch.maximum, all),
    "Min": lambda *all: reduce(torch.minimum, all),
    "Mod": lambda a, b, *, fmod=0: a.fmod(b) if fmod else a.remainder(b),
    "Mul": lambda a, b: a * b,
    "Neg": lambda x: -x,
    "Pow": lambda x, y: x**y,
    "Reciprocal": lambda x: 1 / x,
    "Sqrt": lambda x: x.sqrt(),
    "Sub": lambda a, b: a - b,
    "Sum": lambda *all: reduce(torch.add, all),
    "Where": lambda condition, a, b: torch.where(condition, a, b),
    # Activations.
    "Elu": lambda x, *, alpha=1.0: F.elu(x, alpha),
    "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate=approximate),
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: (alpha * x + beta).clamp(0, 1),
    "HardSwish": lambda x: F.hardswish(x),
    "LeakyRelu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
    "LogSoftmax": lambda x, *, axis=-1: x.log_softmax(axis),
    "Mish": lambda x: F.mish(x),
    "PRelu": lambda x, slope: torch.where(x < 0, slope * x, x),
    "Relu": lambda x: x.relu(),
    "Sigmoid": lambda x: x.sigmoid(),
    "Softmax": lambda x, *, axis=-1: x.softmax(axis),
    "Softplus": lambda x: F.softplus(x),
    "Swish": lambda x, *, alpha=1.0: x * (alpha * x).sigmoid(),
    "Tanh": lambda x: x.tanh(),
    # Layers.
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "Dropout": _dropout,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
    "InstanceNormalization": lambda x, scale, bias, *, epsilon=1e-5: F.instance_norm(
        x, weight=scale, bias=bias, eps=epsilon
    ),
    "LRN": lambda x, *, size, alpha=1e-4, beta=0.75, bias=1.0: F.local_response_norm(x, size, alpha, beta, bias),
    "LayerNormalization": _layer_norm,
    "MatMul": lambda a, b: a @ b,
    "MaxPool": _max_pool,
    "ReduceL2": _reduction(torch.linalg.vector_norm),
    "ReduceMax": _reduction(torch.amax),
    "ReduceMean": _reduction(torch.mean),
    "ReduceSum": _reduction(torch.sum),
    # Shapes.
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": lambda x: x,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
BEFORE_13: dict[str, Operator] = {name: _matrices(OPERATORS[name]) for name in ("Softmax", "LogSoftmax")}
