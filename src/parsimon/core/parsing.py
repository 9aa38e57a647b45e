"""Numbers as people type them."""

from __future__ import annotations

import re
from fractions import Fraction

_LONGEST = 100  # characters of a number
_LARGE_EXPONENT = re.compile(r"e[-+]?[\d_]{4,}", re.IGNORECASE)


def parse_number(text: str) -> float:
    """Return a number or a fraction such as 8/255 as a float; raise ValueError for anything else.

    A fraction is exact, so `1e99999999` would take hours and all memory: such exponents are refused before.
    """
    if len(text) > _LONGEST or _LARGE_EXPONENT.search(text):
        raise ValueError("a number of this size is not supported")
    try:
        return float(Fraction(text))
    except ArithmeticError as error:  # a division by zero, or a number beyond the largest float
        raise ValueError(str(error)) from error
