"""Small models for random input: pure ones, and the same with every misbehaviour that a user's function may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fuzz import Draw
from fuzz.limited_models import Function

SCALES = (1e-300, 1e-30, 1e-9, 1e-3, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 1e3, 1e9, 1e15, 1e28, 1e300)
DTYPES = ("float64", "float64", "float32", "float16", "int64", "int8", "uint8", "longdouble", ">f8")


class Pure:
    """A classifier whose scores of an image depend on that image alone, to the last bit."""

    def __init__(self, draw: Draw, values: int, kind: str) -> None:
        """`kind`: `logits` or `probabilities`."""
        self.classes = draw.randint(2, 6)
        self.kind = kind
        logits = kind == "logits"
        self.scale: float = draw.choice(SCALES) if logits else 1.0
        self.dtype: str = draw.choice(DTYPES) if logits else "float64"
        self.offset = draw.one(0, 2**60) if self.dtype == "int64" else 0  # beyond what double precision tells apart
        self.steps = draw.one(None, None, None, 4, 1)  # scores on a staircase, where many are equal
        self.wall = draw.choice((None,) * 12 + (np.nan, np.inf))  # what some points in space give
        self._frequency = draw.one(0.5, 5.0, 30.0)
        self._weights = np.random.default_rng(draw.randrange(2**32)).normal(size=(self.classes, values))

    def __call__(self, images: NDArray[Any]) -> NDArray[Any]:
        rows = np.asarray(images, np.float64).reshape(len(images), 1, -1)
        with np.errstate(all="ignore"):
            scores = (np.sin(self._frequency * rows) * self._weights).sum(axis=-1)
            if self.steps:
                scores = np.round(scores * self.steps) / self.steps
            if self.kind == "probabilities":
                powers = np.exp(scores - scores.max(axis=1, keepdims=True))
                scores = powers / powers.sum(axis=1, keepdims=True)
            scores = scores * self.scale
            if self.wall is not None:
                scores[(1000 * rows.mean(axis=(1, 2))) % 10 < 1] = self.wall
            if self.dtype in ("int64", "int8", "uint8"):
                limits = np.iinfo(self.dtype)
                scores = np.clip(np.nan_to_num(20 * scores), limits.min, limits.max * (1 - 1e-16))
            converted: NDArray[Any] = scores.astype(self.dtype)
            return converted // 2 + self.offset if self.offset else converted


def reusing(pure: Pure) -> Function:
    """Answer in one buffer again and again."""
    buffer = np.zeros((2**16, pure.classes), pure.dtype)

    def model(images: Any) -> Any:
        buffer[: len(images)] = pure(images)
        return buffer[: len(images)]

    return model


def writing(pure: Pure) -> Function:
    """Normalise images in place."""

    def model(images: Any) -> Any:
        scores = pure(images)
        images[:] = -7
        return scores

    return model


def holding(pure: Pure) -> Function:
    """Write to the images and to the scores of the call before."""
    held: list[Any] = []

    def model(images: Any) -> Any:
        for each in held:
            each[:] = 0
        scores = pure(images)
        held[:] = images, scores
        return scores

    return model


HARMLESS: dict[str, Callable[[Pure], Function]] = {
    "plain": lambda pure: pure,
    "reusing": reusing,
    "writing": writing,
    "holding": holding,
    "list": lambda pure: lambda images: pure(images).tolist(),
    "tuple of rows": lambda pure: lambda images: tuple(pure(images)),
    "fortran": lambda pure: lambda images: np.asfortranarray(pure(images)),
    "read-only": lambda pure: lambda images: np.frombuffer(pure(images).tobytes(), pure.dtype).reshape(len(images), -1),
    "masked": lambda pure: lambda images: np.ma.masked_array(pure(images)),
    "tensor": lambda pure: lambda images: torch.from_numpy(pure(images)),
}

RAISED: tuple[Exception, ...] = (
    *(ValueError("x" * 9999), KeyError(), StopIteration(3), RecursionError(), MemoryError(), OSError(5, "no", "f")),
    *(Exception("\n\na\nb\0"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")),
)

# What a model may answer instead of its scores (rows, classes).
WRONG: dict[str, Function] = {
    "one axis": lambda scores: scores[:, 0],
    "one class": lambda scores: scores[:, :1],
    "no class": lambda scores: scores[:, :0],
    "a row more": lambda scores: np.concatenate([scores, scores[:1]]),
    "a row less": lambda scores: scores[1:],
    "one row": lambda scores: scores[:1],
    "a class more": lambda scores: np.concatenate([scores, scores[:, :1]], axis=1),
    "a class less": lambda scores: scores[:, 1:],
    "turned": lambda scores: scores.T.copy(),
    "three axes": lambda scores: scores[:, :, None],
    "number": lambda scores: scores.sum(),
    "nothing": lambda _: None,
    "empty": lambda _: [],
    "text": lambda _: "cat",
    "bytes": lambda _: b"\xff",
    "mapping": lambda scores: {"logits": scores},
    "pair": lambda scores: (scores, scores),
    "ragged": lambda scores: [[*range(2 + row % 2)] for row in range(len(scores))] + [[1]],
    "objects": lambda scores: scores.astype(object),
    "complex": lambda scores: scores.astype(complex) + 1j,
    "booleans": lambda scores: scores > 0,
    "dates": lambda scores: np.zeros(scores.shape, "datetime64[s]"),
    "records": lambda scores: np.zeros(len(scores), [("a", "f4"), ("b", "f4")]),
    "gradient": lambda scores: torch.zeros(scores.shape, requires_grad=True),
    "bfloat16": lambda scores: torch.zeros(scores.shape, dtype=torch.bfloat16),
    "NaN": lambda scores: np.full(scores.shape, np.nan),
    "one NaN": lambda scores: np.where(np.arange(scores.size).reshape(scores.shape) == 0, np.nan, scores),
    "itself": lambda _: WRONG,
    "raise": lambda _: None,
}


class Faulty:
    """A pure model that misbehaves from some call on, for some calls."""

    def __init__(self, draw: Draw, pure: Pure) -> None:
        self._pure, self.how = pure, draw.choice([*WRONG])
        self._raised = draw.choice(RAISED)
        self._calls, self._first, self._many = 0, draw.choice((0, 0, 1, 2, 3, 5, 8)), draw.choice((1, 10**9))
        self.shown = 0  # wrong answers that were given
        self.plausible = 0  # those of them that another classifier might give

    def __call__(self, images: Any) -> Any:
        scores = self._pure(images)
        call, self._calls = self._calls, self._calls + 1
        if not self._first <= call < self._first + self._many:
            return scores
        self.shown += 1
        if self.how == "raise":
            raise self._raised
        with np.errstate(all="ignore"):
            wrong = WRONG[self.how](scores)
        if isinstance(wrong, np.ndarray) and wrong.dtype == scores.dtype:
            always = self._first == 0 and self._many > 1  # then it is a classifier, if of other classes
            shaped = wrong.shape == scores.shape or (always and wrong.ndim == 2 and len(wrong) == len(scores))
            self.plausible += bool(shaped and np.isfinite(wrong).all())
            self.shown -= np.array_equal(wrong, scores)
        return wrong


class Module(torch.nn.Module):
    """A pure model of torch, with gradients."""

    def __init__(self, draw: Draw, values: int) -> None:
        super().__init__()
        weights = np.random.default_rng(draw.randrange(2**32)).normal(size=(draw.randint(2, 4), values))
        self._weights = torch.from_numpy(weights)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images.to(torch.float64).reshape(len(images), 1, -1)
        return (torch.sin(5 * rows) * self._weights).sum(dim=-1)
