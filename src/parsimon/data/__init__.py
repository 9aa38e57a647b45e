"""Images and labels: `open_data` opens data by name and returns `Data`.

Each source has its own module. Pictures are read lazily, one at a time, as a `Preprocess` describes. This package
imports `core` and `catalogue` only.
"""

from parsimon.data.base import Data, Lazy, choose
from parsimon.data.named import open_data
from parsimon.data.pictures import Preprocess, open_preprocess

__all__ = ["Data", "Lazy", "Preprocess", "choose", "open_data", "open_preprocess"]
