"""The verdict of a run: its robust accuracy, with an interval and a word on how it was obtained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from parsimon.results.statistics import Interval, agresti_coull_interval, wilson_interval
from parsimon.results.text import percent_range

_BOUND = "It is an upper bound on the true robust accuracy; more queries tighten it."
_RANDOM_BOUND = "A better attack may lower it. So may chance, for images with an error rate near 50%."

Kind = Literal["measured", "estimate", "at_most"]
Gate = Literal["estimate", "lower"]


@dataclass(frozen=True)
class Verdict:
    """The robust accuracy: the share of images that are classified correctly and that no attack fooled.

    Attacks give an upper bound on the true robust accuracy; more queries tighten it. On a random model, chance may
    lower it further: each decision from draws is one more chance to count as fooled.

    Attributes:
        value: The robust accuracy. While images are unfinished it can only fall.
        interval: Its 95 % interval over the choice of images; None while images are unfinished.
        kind: `measured`: every correctly classified image was attacked. `estimate`: only some were, and the others are
            assumed to behave like them. `at_most`: images are unfinished.
        images: Number of images.
        attacked: Number of correctly classified images that were attacked, or need not be.
    """

    value: float
    interval: Interval | None
    kind: Kind
    images: int
    attacked: int

    @classmethod
    def of(cls, robust: int, attacked: int, correct: int, images: int, *, unfinished: bool) -> Verdict:
        """Return the verdict of counts: robust images among the attacked, and correct ones among all."""
        # One division of whole numbers, so that 3 of 10 images equal 0.3 exactly.
        value = correct * robust / (images * max(1, attacked))
        if unfinished:
            return cls(value, None, "at_most", images, attacked)
        if attacked == correct:
            return cls(value, wilson_interval(robust, images), "measured", images, attacked)
        return cls(value, product_interval(robust, attacked, correct, images), "estimate", images, attacked)

    def __str__(self) -> str:
        """Return the number as a text with its interval."""
        if self.interval is None:
            return f"at most {self.value:.1%} so far"
        about = "about " if self.kind == "estimate" else ""
        return f"{about}{self.value:.1%} ({percent_range(self.interval)})"

    def passes(self, least: float, gate: Gate = "estimate") -> bool:
        """Return whether the robust accuracy, or the lower end of its interval, is at least this. Unfinished: no."""
        if self.interval is None:
            return False
        return (self.value if gate == "estimate" else self.interval[0]) >= least

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for JSON. `value` is None while images are unfinished; `at_most` always holds."""
        return {
            "value": None if self.kind == "at_most" else self.value,
            "at_most": self.value,
            "interval": self.interval,
            "kind": self.kind,
        }


def product_interval(robust: int, attacked: int, correct: int, images: int) -> Interval:
    """Return the 95 % interval of clean accuracy times the share of attacked images that are robust.

    The intervals of the two rates are combined by the distances of their ends (the method of variance estimates
    recovery, to first order). So both the choice of images and the choice of the attacked ones count. With Wilson's
    intervals in place of Agresti and Coull's, coverage falls to 90 % where the rates are near 0 or 1.
    """
    rate, share = correct / images, robust / max(1, attacked)
    (low_rate, high_rate), (low_share, high_share) = (
        agresti_coull_interval(count, trials) for count, trials in ((correct, images), (robust, attacked))
    )
    low = rate * share - math.hypot(share * (rate - low_rate), rate * (share - low_share))
    high = rate * share + math.hypot(share * (high_rate - rate), rate * (high_share - share))
    return max(0.0, low), min(1.0, high)


def bound_note(*, random: bool) -> str:
    """Return in which direction a robust accuracy may be wrong."""
    return _RANDOM_BOUND if random else _BOUND
