"""Display of results: one line as a repr, a headline with tables in a notebook, rows in pandas."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parsimon.errors import require
from parsimon.results.table import Table

if TYPE_CHECKING:
    import pandas

_NULLABLE = {"predicted": "Int64", "fooled_after": "Int64", "verified": "boolean"}  # columns with unknown values


class Displayed:
    """Base class of results. A subclass says what it is about, and which tables and rows it has."""

    def headline(self) -> str:
        """Return what came out, in one sentence."""
        raise NotImplementedError

    def tables(self) -> list[Table]:
        """Return the tables below the headline."""
        raise NotImplementedError

    def rows(self) -> Iterable[Mapping[str, Any]]:
        """Yield the rows of `to_frame`."""
        raise NotImplementedError

    @property
    def warnings(self) -> Sequence[str]:
        """Reasons to doubt the results, one sentence each."""
        return ()

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per image as a pandas data frame; for several attacks, models or radii, one for each."""
        frame = require("pandas", "pandas").DataFrame(list(self.rows()))
        kinds = {name: kind for name, kind in _NULLABLE.items() if name in frame}
        return frame.astype(kinds)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def _repr_html_(self) -> str:
        """Return the form that a notebook shows."""
        head = f"<p><b>{html.escape(self.headline())}</b></p>"
        warnings = "".join(f"<p><b>warning:</b> {html.escape(each)}</p>" for each in self.warnings)
        return "".join([head, warnings, *(table.html() for table in self.tables())])
