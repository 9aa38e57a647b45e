"""Searches for sets that maximise a set function, as generators, and bounds on what they find.

`search` holds the algorithms, `theory` the bounds. Imports numpy and `parsimon.errors` only: it can be lifted out.
"""

from parsimon.setsearch.search import (
    Elements,
    Family,
    Found,
    LazyRule,
    Mask,
    Phase,
    SetSearch,
    Values,
    evaluate,
    flipped,
    greedy,
    lazy_greedy,
    local_search,
    maximise,
    mini_batches,
    remembering,
    stochastic_greedy,
    zobrist_words,
)

__all__ = [
    "Elements",
    "Family",
    "Found",
    "LazyRule",
    "Mask",
    "Phase",
    "SetSearch",
    "Values",
    "evaluate",
    "flipped",
    "greedy",
    "lazy_greedy",
    "local_search",
    "maximise",
    "mini_batches",
    "remembering",
    "stochastic_greedy",
    "zobrist_words",
]
