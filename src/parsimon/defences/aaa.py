"""AAA: Chen, Huang, Tao, Wu, Xie and Huang, *Adversarial Attack on Attackers: Post-Process to Mitigate Black-Box
Score-Based Query Attacks* (NeurIPS 2022).

The margin is the highest logit minus the second. The defence shows another margin, which within each interval of
length tau rises where the true one falls. An attacker who lowers the shown margin is led to the middle of an interval
(`linear`) or away from it (`sine`). The shown confidence stays close to that of the logits over a temperature.

Differences from the paper: it runs 100 steps of Adam per query. They minimise the distance to the target margin plus 5
times the distance to the target confidence. This version computes logits that have the target margin exactly. The
second logit stays, and all lower ones move by one common shift, at most to the second. The shift gives the target
confidence if it is at most 10, as far as those steps of Adam can move a logit. Otherwise the confidence is as close as
that allows. The predicted class never changes, because the shown margin is at least 0.0001; in the paper it hardly ever
changes. The authors' code also rounds pixels down to 8 bits; this version does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Paper
from parsimon.defences.base import ScoreDefence
from parsimon.errors import InputError, check_choice, check_flag, check_number

Shape = Literal["linear", "sine"]

_ALPHA: dict[Shape, float] = {"linear": 1.0, "sine": 0.7}  # in the authors' code
_LEAST_MARGIN = 1e-4  # so that single precision still tells the predicted class
_MOST_SHIFT = 10.0  # 100 steps of 0.1
_FAR = 40.0  # logits further below the second do not count
_LARGEST_EXPONENT = 100.0
_LEAST_MASS = 1e-30


@dataclass(frozen=True)
class AAA(ScoreDefence):
    """Shows margins that mislead the attacker.

    Attributes:
        shape: How the shown margin depends on the true one: `linear` reverses every interval, `sine` adds a wave.
        tau: The length of the intervals, in logits.
        alpha: The slope of the reversed line, or the height of the wave in tau; none: 1 for linear and 0.7 for sine.
        temperature: Divides the logits before the confidence is computed; 1 keeps the confidence of the model.
        known: Return what an attacker who knows the defence can compute from its responses: the true margin. Only for
            linear with an alpha of 1, which maps each interval onto itself.
    """

    shape: Shape = "linear"
    tau: float = 6.0
    alpha: float | None = None
    temperature: float = 1.0
    known: bool = False

    paper: ClassVar = Paper(
        "Chen, Huang, Tao, Wu, Xie and Huang",
        "Adversarial Attack on Attackers: Post-Process to Mitigate Black-Box Score-Based Query Attacks",
        2022,
        "https://arxiv.org/abs/2205.12134",
    )
    # The temperatures are those of the authors' code for a WideResNet-28-10 and a WideResNet-50-2.
    presets: ClassVar = {
        "cifar10": {"shape": "linear", "tau": 6.0, "alpha": 1.0, "temperature": 2.08333},
        "cifar10-sine": {"shape": "sine", "tau": 6.0, "alpha": 0.7, "temperature": 2.08333},
        "imagenet": {"shape": "linear", "tau": 6.0, "alpha": 1.0, "temperature": 1.20482},
        "imagenet-sine": {"shape": "sine", "tau": 6.0, "alpha": 0.7, "temperature": 1.20482},
    }

    def __post_init__(self) -> None:
        check_choice("shape", self.shape, get_args(Shape))
        check_number("tau", self.tau, 0.01, 1000)
        if self.alpha is not None:
            check_number("alpha", self.alpha, 0, 100)
        check_number("temperature", self.temperature, 0.01, 100)
        check_flag("known", self.known)
        if self.known and not self.reversible:
            raise InputError("known=true needs shape=linear and alpha=1: only there can the true margin be computed")

    @property
    def reversible(self) -> bool:
        """Whether the true margin follows from the returned one, since each interval is mapped onto itself."""
        return self.shape == "linear" and self.alpha in (None, 1)

    def transform(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        shown = self._masked(logits)
        return self._restored(shown) if self.known else shown

    def undone(self) -> AAA | None:
        return replace(self, known=True) if self.reversible and not self.known else None

    def _restored(self, shown: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the shown logits with the true margin, which a reversal of its interval gives back."""
        rows, best = np.arange(len(shown)), shown.argmax(axis=1)
        second = np.partition(shown, -2, axis=1)[:, -2]
        margin = self.target_margin(shown[rows, best] - second)
        result = shown.copy()
        result[rows, best] = second + np.maximum(margin, _LEAST_MARGIN)
        return result

    def _masked(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        order = np.argsort(-logits, axis=1, kind="stable")  # the predicted class first, even in a tie
        ranked = np.take_along_axis(logits, order, axis=1)
        second = ranked[:, 1]
        with np.errstate(invalid="ignore", over="ignore"):  # infinite logits
            margin = ranked[:, 0] - second
            gaps = second[:, None] - ranked[:, 2:]
            target = np.maximum(self.target_margin(margin), _LEAST_MARGIN)
            shift = _shift(np.minimum(gaps, _FAR), self._mass(margin, gaps, target))
            shown = ranked.copy()
            shown[:, 0] = np.maximum(second + target, np.nextafter(second, np.inf))
            shown[:, 2:] = second[:, None] - np.maximum(gaps + shift[:, None], 0)
        shown = np.where(np.isfinite(margin)[:, None], shown, ranked)
        result = np.empty_like(logits)
        np.put_along_axis(result, order, shown, axis=1)
        return result

    def target_margin(self, margin: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the margin to show for a true margin; it may be negative for a large alpha."""
        alpha = _ALPHA[self.shape] if self.alpha is None else self.alpha
        attractor = (np.floor(margin / self.tau) + 0.5) * self.tau
        away = margin - attractor
        if self.shape == "linear":
            return attractor - alpha * away
        wave: NDArray[np.float64] = np.sin(np.pi * (1 - 2 * away / self.tau))
        return margin - alpha * self.tau * wave

    def _mass(
        self, margin: NDArray[np.float64], gaps: NDArray[np.float64], target: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the probability of the lower classes over that of the second, for which the confidence is right.

        With a confidence p and a target margin t, the others have (1 - p) / p * exp(t) times the second's probability.
        """
        below_second = np.log1p(np.exp(-gaps / self.temperature).sum(axis=1))
        log_odds = below_second - margin / self.temperature
        mass: NDArray[np.float64] = np.expm1(np.minimum(target + log_odds, _LARGEST_EXPONENT))
        return mass


def _shift(gaps: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, per row, the shift for which the sum of exp(-max(gap + shift, 0)) is the mass; the gaps are ascending.

    The first gaps may become 0. They are those at which the sum, with this gap just 0, is still below the mass.
    """
    rows, count = gaps.shape
    if count == 0:
        return np.zeros(rows)
    mass = np.clip(mass, _LEAST_MASS, count)
    remaining = np.cumsum(np.exp(-gaps)[:, ::-1], axis=1)[:, ::-1]
    closed = (np.arange(count) + np.exp(gaps) * remaining < mass[:, None]).sum(axis=1)
    closed = np.minimum(closed, count - 1)
    share = (mass - closed) / remaining[np.arange(rows), closed]
    shift: NDArray[np.float64] = -np.log(np.maximum(share, _LEAST_MASS))
    return shift.clip(-_MOST_SHIFT, _MOST_SHIFT)
