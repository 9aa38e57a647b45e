"""Images and labels, from where people keep them: `open_data` reads what a person types.

Each form has a module of its own, and all come down to `Data`. Pictures are read when they are asked for, one at a
time, as a `Preprocess` says.
"""

from parsimon.data.base import Data, Lazy
from parsimon.data.choice import choose
from parsimon.data.named import open_data, open_preprocess
from parsimon.data.preprocess import Preprocess

__all__ = ["Data", "Lazy", "Preprocess", "choose", "open_data", "open_preprocess"]
