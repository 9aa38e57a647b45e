"""Check a model and its data before an attack: what `parsimon check` prints and `parsimon.check` returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from parsimon.core.model import Model
from parsimon.core.threat import Sampling, Threat
from parsimon.data.pairs import split_pairs
from parsimon.data.validate import as_images, as_numpy, check_labels
from parsimon.errors import ParsimonError
from parsimon.results.display import Displayed
from parsimon.results.table import Cell, Table
from parsimon.runs.config import RunConfig
from parsimon.runs.diagnose import Finding, inspect
from parsimon.runs.inputs import open_defended
from parsimon.runs.preflight import check_random
from parsimon.runs.score_kind import with_known_scores

BATCH_SIZE = 64
_DRAWS = 20  # of each clean image of a random model; a run draws more
MARKS = {"ok": "ok  ", "note": "note", "error": "error"}


class Findings(Displayed, list[Finding]):
    """Everything that was found, in order. After an error nothing more is checked."""

    @property
    def attackable(self) -> bool:
        """Whether the model can be attacked on these images."""
        return not any(finding.verdict == "error" for finding in self)

    def headline(self) -> str:
        """Return whether the model can be attacked, and how much there is to read."""
        if not self.attackable:
            return f"this cannot be attacked: {self[-1].sentence}"
        notes = sum(finding.verdict == "note" for finding in self)
        return f"ready to attack: {len(self)} checks, {notes} note{'s' * (notes != 1)}"

    def tables(self) -> list[Table]:
        """Return one table of all findings."""
        rows = [[Cell(each.name), Cell(each.verdict), Cell(each.sentence)] for each in self]
        return [Table("Checks before an attack", ["check", "result", "what was found"], [rows], [])]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of `to_frame`, one per finding."""
        return map(asdict, self)

    def __str__(self) -> str:
        return "\n".join(f"{MARKS[each.verdict]} {each.name}: {each.sentence}" for each in self)


def find(model: Model, images: Any, labels: Any, config: RunConfig) -> Iterator[Finding]:
    """Yield each finding as soon as it is known.

    The batch size, the defence, the kind of scores and whether the model is random come from the configuration. If it
    has no kind of scores, that is detected from the clean images.
    """
    sampling = Sampling(draws=_DRAWS) if config.stochastic else None
    threat = Threat(1 / 255, loss="margin", eight_bit=model.eight_bit_only, sampling=sampling)
    try:
        defended_model, declared = open_defended(model, config)
        check_random(defended_model, {}, stochastic=config.stochastic)
        images, labels = split_pairs(images, labels)
        source = as_images(images)
        predicted = isinstance(labels, str) and labels == "predicted"
        classes = None if predicted else check_labels(as_numpy(labels, "labels"), len(source))
        defended_model, _ = with_known_scores(defended_model, source, threat, config.scores)
    except ParsimonError as error:
        yield Finding("images, labels, model", "error", str(error), error.argument)
        return
    yield from inspect(defended_model, source, classes, threat, config.batch_size or BATCH_SIZE, declared=declared)
