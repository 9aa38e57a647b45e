"""The files and rows of a run that tests compare."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


class RunFolder:
    """The folder of a run, which may not have started yet."""

    folder: Path

    @property
    def outcomes(self) -> list[Any]:
        return self._rows("SELECT * FROM outcomes ORDER BY attack, image")

    @property
    def journal(self) -> list[Any]:
        return self._rows("SELECT * FROM journal")

    @property
    def files(self) -> list[bytes]:
        return [(self.folder / name).read_bytes() for name in ("results.csv", "table.md", "table.tex", "examples.png")]

    def _rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "run.sqlite")) as database:
            return database.execute(query).fetchall()
