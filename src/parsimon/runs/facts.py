"""Typed facts about the inputs of a run: recorded at its start, compared when it is resumed, and read back later."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from parsimon.core.threat import Rounding, Scores
from parsimon.errors import InputError
from parsimon.results.result import CleanPredictions
from parsimon.results.statistics import wilson_interval
from parsimon.runs.preparation import Job, Prepared, goal_classes
from parsimon.runs.same_model import check_same_draws, check_same_model
from parsimon.runs.store import Store
from parsimon.version import __version__

_LOG = logging.getLogger("parsimon")
_CLEAR = 0.75  # of the draws at least have one class: another majority would not come by chance
# Backends under the names that version 0.2 stored.
_FORMER_BACKENDS = {"ONNX Runtime, a core a call": "ONNX Runtime, one single-threaded call per core"}

Number = Annotated[int, Meta(ge=0, lt=2**31)]
Numbers = Annotated[list[Number], Meta(min_length=1)]


class RunFacts(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"config": "spec", "data_fingerprint": "fingerprint", "backend": "way"},
):
    """The facts that reading a run back needs. A file of version 0.2 has no checksums, so types are checked."""

    config: dict[str, Any]
    data_fingerprint: str
    labels: Numbers
    predicted: Numbers
    chosen: list[Number]  # empty if the model classifies no image correctly
    confidence: list[float]  # empty if the model returns labels
    classes: Number
    backend: str | None = None
    remarks: list[str] | None = None
    warnings: list[str] | None = None
    rounding: Rounding | None = None  # version 0.2 knew only the nearest float, and did not say so
    kind: Scores | None = None  # of the scores, if it was detected
    excluded: list[Number] | None = None  # images whose result is known
    clean_errors: list[Number] | None = None  # of the draws of each clean image, on a random model
    clean_draws: Number | None = None

    @classmethod
    def read(cls, store: Store) -> RunFacts | None:
        """Read the facts of a run; return None while it has not begun."""
        fields = msgspec.structs.fields(cls)
        facts = {field.encode_name: store.get_fact(field.encode_name) for field in fields}
        if facts["chosen"] is None or facts["predicted"] is None:
            return None
        store.verify()
        for field in fields:
            try:
                msgspec.convert(facts[field.encode_name], field.type)
            except msgspec.ValidationError:
                raise store.damaged(f"the fact {field.encode_name!r}") from None
        return msgspec.convert(facts, cls)

    @property
    def clean(self) -> CleanPredictions:
        seen = np.asarray(self.predicted, np.intp)
        confidence = np.asarray(self.confidence, np.float64) if self.confidence else None
        correct, errors = seen == np.asarray(self.labels, np.intp), None
        if self.clean_errors is not None and self.clean_draws:
            errors = np.asarray(self.clean_errors, np.int64)
            correct = 2 * errors <= self.clean_draws
        return CleanPredictions(
            seen,
            correct,
            self.classes,
            confidence,
            self.backend,
            remarks=tuple(self.remarks or ()),
            warnings=tuple(self.warnings or ()),
            kind=self.kind or "logits",
            draws=self.clean_draws or 0,
            errors=errors,
        )


def rounding_of(store: Store) -> Rounding:
    """Return how a stored run rounds the ball's bounds."""
    begun: bool = store.get_fact("predicted") is not None
    rounding: Rounding = store.get_fact("rounding") or ("nearest" if begun else "inward")
    return rounding


def record_clean(
    store: Store,
    clean: CleanPredictions,
    labels: NDArray[np.intp],
    chosen: list[int],
    undefended: Scores | None = None,
) -> CleanPredictions:
    """Record the predictions for the clean images, or check that a resumed run has the same model and data.

    `undefended` is what the model returns without its defences, if they must know it.
    """
    assert clean.scores is not None, "only predictions that were read from a run have no scores"
    if store.get_fact("predicted") is None:
        store.set_fact("rounding", "inward")
    if store.get_fact("confidence") is None:  # not compared: another machine may round its last digits differently
        store.set_fact("confidence", [] if clean.confidence is None else clean.confidence.tolist())
    store.check_fact("kind", clean.kind)
    if undefended is not None:
        store.check_fact("kind without defences", undefended)
    store.check_fact("classes", clean.classes)
    store.check_fact("labels", labels.tolist())
    store.check_fact("predicted", clean.predicted.tolist())
    store.check_fact("chosen", chosen)
    if clean.backend is not None:
        if (former := store.get_fact("way")) in _FORMER_BACKENDS:
            store.set_fact("way", _FORMER_BACKENDS[former])
        check_continued(store, "way", clean.backend, "the model run by", "rounds differently")
    if clean.errors is not None:
        store.check_fact("clean_errors", clean.errors.tolist())
        store.check_fact("clean_draws", clean.draws)
        if store.get_fact("scores") is None:
            store.set_fact("repeatable", clean.repeatable)
    scores = store.get_fact("scores")
    if scores is None:
        store.set_fact("scores", _packed(clean.scores))
        store.set_fact("remarks", [*clean.remarks, *(store.get_fact("remarks") or [])])
    elif clean.errors is None or store.get_fact("repeatable"):
        check_same_model(_unpacked(scores), clean.scores)
    if clean.fingerprint is not None:
        store.check_fact("model file", clean.fingerprint)
    _note_runtime(store, clean.runtime)
    if store.get_fact("warnings") is None:
        store.set_fact("warnings", list(clean.warnings))
    remarks, warnings = (tuple(store.get_fact(name) or ()) for name in ("remarks", "warnings"))
    return replace(clean, remarks=remarks, warnings=warnings)


def restore_random(store: Store, prepared: Prepared, job: Job) -> Prepared:
    """Return a resumed run of a random model as it was begun: its clean images are drawn once.

    The new draws only check that it is the same model. If they come from the keys alone, they must be the same.
    Otherwise, they must give the same class where the first ones clearly agreed.
    """
    facts = RunFacts.read(store)
    if facts is None or facts.clean_errors is None:
        return prepared
    if job.labels is not None:
        store.check_fact("labels", job.labels.tolist())
    begun = facts.clean
    agreeing = np.rint(np.zeros(len(begun.predicted)) if begun.confidence is None else begun.confidence * begun.draws)
    clear = np.array([wilson_interval(int(count), begun.draws)[0] >= _CLEAR for count in agreeing])
    if len(begun.predicted) != len(prepared.clean.predicted):
        return prepared  # other data, which is refused below
    if differing := int((begun.predicted != prepared.clean.predicted)[clear].sum()):
        raise InputError(
            f"this run was begun with another model: of {int(clear.sum())} clean images with one class in nearly all "
            f"draws, {differing} have another class now. Start a new run, or restore the model."
        )
    if store.get_fact("repeatable"):
        check_same_draws(begun, prepared.clean)
    labels = np.asarray(facts.labels, np.intp)
    clean = replace(prepared.clean, predicted=begun.predicted, correct=begun.correct, confidence=begun.confidence)
    clean = replace(clean, errors=begun.errors, draws=begun.draws)
    goals = labels if job.targets is None else goal_classes(job.targets, labels, clean)
    return replace(prepared, clean=clean, labels=labels, goals=goals, chosen=list(facts.chosen))


def check_version(store: Store, attack: str, *, eight_bit: bool) -> None:
    """Refuse to continue an attack that was begun by a version whose queries may differ from this one's."""
    probes = attack.startswith(("NES", "Bandits"))  # version 0.2 showed 8-bit models their probes outside [0, 1]
    if store.get_fact("parsimon") != "0.2.0" or (eight_bit and probes):
        check_continued(store, "parsimon", __version__, "parsimon", "may query differently")


def check_continued(store: Store, key: str, value: str, what: str, why: str) -> None:
    """Record how a run is executed, or refuse to continue it in another way."""
    begun = store.get_fact(key) or value
    if begun != value:
        raise InputError(
            f"this run was begun with {what} {begun}, and would continue with {what} {value}, which {why}: its results "
            "would be mixed. Continue it as it was begun, or start a new run."
        )
    store.set_fact(key, begun)


def _note_runtime(store: Store, runtime: str | None) -> None:
    """Remark on another version of the library that runs the model."""
    begun = store.get_fact("runtime")
    if begun is None:
        store.set_fact("runtime", runtime)
        return
    remarks = store.get_fact("remarks") or []
    remark = f"The run was begun with {begun} and continued with {runtime}, which may round differently."
    if begun != runtime and remark not in remarks:
        store.set_fact("remarks", [*remarks, remark])
        _LOG.warning("%s", remark)


def _packed(scores: NDArray[np.float32]) -> dict[str, Any]:
    return {"shape": scores.shape, "float32": base64.b64encode(scores.tobytes()).decode()}


def _unpacked(fact: dict[str, Any]) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(fact["float32"]), np.float32).reshape(fact["shape"])
