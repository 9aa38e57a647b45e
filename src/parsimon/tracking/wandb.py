"""Weights & Biases, offline by default: `wandb sync` uploads the files in the run's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import require
from parsimon.results.table import Table


def open_tracker(place: str, folder: Path, spec: Mapping[str, Any]) -> WeightsAndBiases:
    """Return a tracker of the project `place`, by default `parsimon`."""
    return WeightsAndBiases(place or "parsimon", folder, spec)


class WeightsAndBiases:
    """A run of a project. The horizontal axis of an attack's curves is its own queries."""

    def __init__(self, project: str, folder: Path, spec: Mapping[str, Any]) -> None:
        self._wandb = require("wandb", "wandb")
        self._project, self._folder, self._spec = project, folder, spec
        self._pictures: dict[str, list[Any]] = {}
        self._defined: set[str] = set()

    @cached_property
    def _run(self) -> Any:
        """The run, started on first use: a run that is refused leaves no trace."""
        return self._wandb.init(
            project=self._project,
            name=self._folder.resolve().name,
            dir=str(self._folder),
            config=dict(self._spec),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=self._wandb.Settings(console="off", silent=True),  # standard output belongs to the command
        )

    def progress(self, attack: str, queries: int, values: Mapping[str, float]) -> None:
        if attack not in self._defined:
            self._defined.add(attack)
            self._run.define_metric(f"{attack}/*", step_metric=f"{attack}/queries")
        named = {f"{attack}/{name}": value for name, value in values.items()}
        self._run.log({f"{attack}/queries": queries, **named})

    def curve(self, attack: str, queries: Sequence[int], shares: Sequence[float]) -> None:
        rows = [list(row) for row in zip(queries, shares, strict=True)]
        table = self._wandb.Table(columns=["queries", "success"], data=rows)
        chart = self._wandb.plot.line(table, "queries", "success", title=f"{attack}: success within queries")
        self._run.log({f"{attack}/success within queries": chart})

    def table(self, name: str, table: Table) -> None:
        rows = [[_text(cell) for cell in row] for group in table.groups for row in group]
        self._run.log({name: self._wandb.Table(columns=list(table.headers), data=rows)})

    def picture(self, attack: str, pixels: NDArray[np.uint8], caption: str) -> None:
        self._pictures.setdefault(attack, []).append(self._wandb.Image(pixels, caption=caption))

    def close(self) -> None:
        if "_run" not in vars(self):
            return
        if self._pictures:
            self._run.log({f"{attack}/gallery": pictures for attack, pictures in self._pictures.items()})
        self._run.finish()


def _text(cell: Any) -> str:
    return f"{cell.text} ({' to '.join(cell.interval)})" if cell.interval else str(cell.text)
