"""Detect from clean images what a model returns: logits, probabilities or labels."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from parsimon.core.model import Model
from parsimon.core.threat import Scores, Threat, detect_scores
from parsimon.core.types import ImageSource
from parsimon.data.validate import check_count
from parsimon.defences.base import needs_score_kind, undefended, with_score_kind
from parsimon.errors import InputError
from parsimon.runs.classify import check_shape, classify, read

_FEW_IMAGES, _MORE_IMAGES = 8, 64  # per batch in which kinds of scores are detected, at first and later


class ScoreKind:
    """What a model returns, found from one batch of clean images after another.

    One-hot rows are labels, or the scores of a saturated softmax. So the kind stays open while all rows are one-hot,
    unless labels are declared.

    Attributes:
        found: The kind that fits all scores so far.
        open: Whether further scores may change it.
    """

    def __init__(self, model: Model, declared: Scores | None) -> None:
        known = model.returns is not None and declared in (None, model.returns)
        self.found: Scores = (model.returns if known else None) or "logits"
        self.open = not known
        self._declared, self._columns, self._began = declared, 0, False
        self._best_class = declared == "labels" and model.top is not None  # of the most probable ones: a label

    def see(self, scores: NDArray[Any]) -> bool:
        """Take the scores of further images; return whether the kind is new."""
        before, first = self.found, not self._began
        self._began = True
        if self.open:
            self._columns = scores.shape[1]
            self.found = "labels" if self._best_class else detect_scores(scores)
            self.open = self.found == "labels" and self._columns > 1 and self._declared != "labels"
            if not self.open:
                self.check()
        return first or self.found != before

    def check(self) -> None:
        """Refuse a kind other than declared, whose loss would mislead the search."""
        if self._declared in (None, self.found):
            return
        reasons = {
            "labels": "one class number per image" if self._columns == 1 else "each row is one 1 and zeros",
            "probabilities": "rows sum to 1",
            "logits": "rows do not sum to 1, or have negative numbers",
        }
        what = f"the model returns {self.found} ({reasons[self.found]}), not {self._declared}"
        raise InputError(f"{what}: pass scores={self.found!r}", argument="scores")


def kind_of(model: Model, images: ImageSource, threat: Threat, declared: Scores | None = None) -> Scores:
    """Return what a model returns, detected from a few clean images, or from more while all rows are one-hot.

    The result depends neither on the batch size nor on other calls. Another kind than declared is refused.
    """
    check_count(len(images))
    kind = ScoreKind(model, declared)
    start, size, shape = 0, _FEW_IMAGES, None
    while kind.open and start < len(images):
        pixels = read(images, start, size, threat, shape)
        shape = pixels.shape[1:]
        if start == 0:
            check_shape(model, shape)
        kind.see(classify(model, pixels, size))
        start, size = start + len(pixels), _MORE_IMAGES
    kind.check()
    return kind.found


def with_known_scores(
    model: Model, images: ImageSource, threat: Threat, declared: Scores | None = None
) -> tuple[Model, Scores | None]:
    """Return a model whose defences know what the model behind them returns, and what that is.

    `declared` is what the user says that it returns. The second is None if no defence has to know.
    """
    if not needs_score_kind(model):
        return model, None
    kind = kind_of(undefended(model), images, threat, declared)
    return with_score_kind(model, kind), kind
