"""TensorBoard's event files, written by tensorboardX, which needs no deep-learning framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import require
from parsimon.results.table import Table


def open_tracker(place: str, folder: Path, spec: Mapping[str, Any]) -> TensorBoard:
    """Return a tracker that writes to the folder `place`, by default in the run's folder."""
    return TensorBoard(Path(place) if place else folder / "tensorboard", spec)


class TensorBoard:
    """A tracker whose steps, on TensorBoard's horizontal axis, are queries."""

    def __init__(self, folder: Path, spec: Mapping[str, Any]) -> None:
        self._library = require("tensorboardX", "tensorboard")
        self._folder, self._spec = folder, spec

    @cached_property
    def _writer(self) -> Any:
        """The writer, created on first use: a run that is refused leaves no trace."""
        writer = self._library.SummaryWriter(str(self._folder))
        lines = [f"    {key} = {value!r}" for key, value in self._spec.items() if value is not None]
        writer.add_text("spec", "\n".join(lines), 0)
        return writer

    def progress(self, attack: str, queries: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{name.replace(' ', '_')}/{attack}", value, queries)

    def curve(self, attack: str, queries: Sequence[int], shares: Sequence[float]) -> None:
        for at, share in zip(queries, shares, strict=True):
            self._writer.add_scalar(f"success_within_queries/{attack}", share, at)

    def table(self, name: str, table: Table) -> None:
        self._writer.add_text(name, table.markdown(), 0)

    def picture(self, attack: str, pixels: NDArray[np.uint8], caption: str) -> None:
        self._writer.add_image(f"{attack}/{caption.replace(' ', '_')}", pixels, 0, dataformats="HWC")

    def close(self) -> None:
        if "_writer" in vars(self):
            self._writer.close()
