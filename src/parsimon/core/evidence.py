"""A sequential test of whether an event is more probable than not, valid after any number of trials.

The null hypothesis is a probability of at most one half, whatever it is at each trial. The evidence against it is the
likelihood ratio, averaged over probabilities above one half. Half of the weight is on 1, the rest is spread evenly.
Under the null hypothesis it is a supermartingale that starts at 1. By Ville's inequality it therefore ever reaches
1 / error_rate with a probability of at most `error_rate`.
"""

from __future__ import annotations

import math
from functools import lru_cache

_SPENT_IN_ALL = math.pi**2 / 6  # the sum of 1 / n^2


@lru_cache(maxsize=4096)
def evidence(events: int, trials: int) -> float:
    """Return the evidence that an event is more probable than not, after `events` occurrences in `trials`.

    For k events in n trials, the even part is 2^n times the integral of 2 p^k (1 - p)^(n - k) over p above 1/2.
    """
    ways = sum(math.comb(trials + 1, fewer) for fewer in range(events + 1))
    spread = ways / ((trials + 1) * math.comb(trials, events))
    certain = 2.0**trials if events == trials else 0.0
    return (certain + spread) / 2


@lru_cache(maxsize=4096)
def events_missing(events: int, trials: int, error_rate: float) -> int:
    """Return the fewest further trials after which the evidence can suffice: if the event occurs in each of them."""
    missing = 0
    while evidence(events + missing, trials + missing) * error_rate < 1:
        missing += 1
    return missing


def spent_error_rate(error_rate: float, number: int) -> float:
    """Return the error rate of the test of this number, from 1. Any number of such tests err with `error_rate` in all.

    It is that of the union bound, with shares that fall like 1 / number^2.
    """
    return error_rate / number**2 / _SPENT_IN_ALL
