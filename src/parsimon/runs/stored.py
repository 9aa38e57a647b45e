"""Stored runs: a folder with the spec, the environment and the run file. Begin one, go on with one, read one."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks.registry import attack_rows, reference_row
from parsimon.core.engine import Counters
from parsimon.core.model import Traffic
from parsimon.core.threat import Rounding, Threat
from parsimon.core.types import Attack, JournalEntry, Outcome
from parsimon.data import Data
from parsimon.errors import InputError, OutageError, StoreError, quote
from parsimon.models import hubs
from parsimon.results.result import CleanPredictions, Comparison, Result, Verification
from parsimon.runs.config import Spec
from parsimon.runs.execute import ExecutionOptions, launch
from parsimon.runs.inputs import open_data_for, preprocess_for
from parsimon.runs.store import Store

_SPEC, _ENVIRONMENT = "spec.toml", "environment.json"
_PACKAGES = (
    *("parsimon", "numpy", "array-api-compat", "onnxruntime", "torch", "tritonclient"),
    *("transformers", "timm", "robustbench"),
)


def run(spec: Spec, folder: Path, **means: Unpack[ExecutionOptions]) -> Comparison:
    """Begin a run in a folder, or go on with the one that is there if it is of the same spec."""
    spec = _written_out(spec)
    if is_run(folder) and (changes := spec_of(folder).differences(spec)):
        raise InputError(f"{folder} holds a run of another spec; it says\n  " + "\n  ".join(changes))
    data = data_of(spec)
    rows = attack_rows(spec.attacks)
    reference = reference_row(spec.relative_to, rows)

    @contextmanager
    def open_store() -> Iterator[Store]:
        folder.mkdir(parents=True, exist_ok=True)
        with Store(folder, data.images, write=True) as store:
            if not is_run(folder):
                _write(folder / _ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
                _write(folder / _SPEC, spec.toml())
            _hold_spec(store, spec, folder)
            _hold_data(store, data)
            try:
                yield store
            except OutageError as error:
                told = f"The run is paused, and all that it was told is saved. Go on with: parsimon resume {folder}"
                raise OutageError(f"{error}. {told}") from None

    results = launch_spec(spec, rows, data, rounding=_rounding_of(folder, data), open_store=open_store, **means)
    return Comparison(results, reference)


def _rounding_of(folder: Path, data: Data) -> Rounding:
    """Return how the run in a folder rounds its bounds: version 0.2 knew only the nearest float."""
    if not is_run(folder):
        return "inward"
    with Store(folder, data.images) as store:
        rounding: Rounding | None = "inward" if store.get_fact("predicted") is None else store.get_fact("rounding")
    return rounding or "nearest"


def _hold_spec(store: Store, spec: Spec, folder: Path) -> None:
    """Write down of what it is a run, or see that nobody has edited the file that says so."""
    begun = store.get_fact("spec")
    if begun is None:
        store.set_fact("spec", asdict(spec))
    else:
        _check_spec(begun, spec, folder)


def _hold_data(store: Store, data: Data) -> None:
    """Write down what the data are, or see that they have not changed since the run was begun."""
    begun = store.get_fact("fingerprint")
    if begun is None:
        store.set_fact("fingerprint", data.fingerprint)
    else:
        _check_data(begun, data)


def _check_data(begun: str, data: Data) -> None:
    if begun != data.fingerprint:
        raise InputError(
            f"the data {quote(data.name)} have changed since the run was begun (fingerprint {quote(begun)}, now "
            f"{data.fingerprint}), so that its results are of other images. Bring the data back, or start a new run."
        )


def _check_spec(begun: dict[str, Any], spec: Spec, folder: Path) -> None:
    if changes := Spec.of(begun).differences(spec):
        raise InputError(
            f"{folder / _SPEC} was changed since the run was begun, so that its results are of another spec. Bring it "
            "back, or begin another run. It was\n  " + "\n  ".join(changes)
        )


def _written_out(spec: Spec) -> Spec:
    """With what a hub says of its model's pictures, so that the run can be read where the hub cannot be reached."""
    if not hubs.is_named(spec.model):
        return spec
    return replace(spec, preprocess=preprocess_for(spec.model, spec.data, spec.preprocess))


def launch_spec(
    spec: Spec,
    attacks: Mapping[str, Attack],
    data: Data,
    *,
    rounding: Rounding = "inward",
    open_store: Callable[[], AbstractContextManager[Store | None]] = nullcontext,
    **means: Unpack[ExecutionOptions],
) -> dict[str, Result]:
    """Attacks on the images and the model of a spec, with its settings."""
    return launch(
        attacks,
        spec.model,
        data.images,
        data.labels,
        spec.radius,
        budget=spec.budget,
        targets=spec.targets,
        loss=spec.loss,
        scores=spec.scores,
        eight_bit=spec.eight_bit,
        at_most=None if spec.images == "all" else spec.images,
        sample=spec.sample,
        seed=spec.seed,
        batch_size=spec.batch_size,
        rounding=rounding,
        open_store=open_store,
        **means,
    )


def _write(path: Path, text: str) -> None:
    """All or nothing: a spec that a kill cut short would say less, and be that of another run."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


def is_run(folder: Path) -> bool:
    return (folder / _SPEC).exists()


def identity(folder: Path) -> str:
    """Tells whether the run in a folder is still the same one, or another was begun in its place."""
    try:
        about = (folder / _SPEC).stat()
    except OSError as error:
        raise StoreError(f"the run in {folder} cannot be read: {error.strerror}") from error
    return f"{about.st_ino:x}-{about.st_mtime_ns:x}"


def spec_of(folder: Path) -> Spec:
    """What the run in a folder is a run of."""
    if not is_run(folder):
        raise StoreError(f"{folder} holds no run: there is no {_SPEC} in it")
    return Spec.read(folder / _SPEC)


def resume(folder: Path, **means: Unpack[ExecutionOptions]) -> Comparison:
    """Go on with a run where it was left off, in the middle of an image if need be."""
    return run(spec_of(folder), folder, **means)


def load(folder: Path) -> Comparison:
    """A run's results so far, read without its model; images that have not ended count as interrupted."""
    reading = StoredRun(folder)
    reading.refresh()
    if not reading.begun:
        raise StoreError(f"the run in {folder} was not begun: there is nothing to read yet")
    return reading.comparison(reading.in_work())


class StoredRun:
    """A run that is read again and again while another process may be working on it. Each outcome is read once.

    Attributes:
        spec: What it is a run of.
        data: Its images.
        queries: Of each attack, charged so far, for images in work too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.spec = spec_of(folder)
        self.data = data_of(self.spec)
        self.queries: dict[str, int] = {}
        self._attacks = attack_rows(self.spec.attacks)
        self._outcomes: dict[str, dict[int, Outcome]] = {name: {} for name in self._attacks}
        self._traffic: dict[str, Traffic | None] = {}
        self._verified: dict[str, Verification | None] = {}
        self._place = 0
        self._chosen: list[int] = []
        self._rounding: Rounding = "inward"
        self._truth: NDArray[np.intp]
        self._clean: CleanPredictions

    @property
    def begun(self) -> bool:
        """Whether images were chosen: before that there is nothing to read."""
        return bool(self._chosen)

    def refresh(self) -> list[tuple[str, Outcome]]:
        """What has ended since it was last asked, in the order in which it did, each with its attack's name."""
        with Store(self._folder, self.data.images) as store:
            if not self.begun and not self._begin(store):
                return []
            ended = store.ended_after(self._place)
            self._traffic = {name: store.traffic(name) for name in self._attacks}
            self._verified = {name: store.verification(name) for name in self._attacks}
            self.queries = {name: store.queries(name) for name in self._attacks}
            chosen = set(self._chosen)
            for _, name, outcome in ended:
                if name not in self._attacks or outcome.index not in chosen:
                    raise store.damaged(f"it has an outcome of {quote(name)} on image {outcome.index}")
        for self._place, name, outcome in ended:
            self._outcomes[name][outcome.index] = outcome
        return [(name, outcome) for _, name, outcome in ended]

    def _begin(self, store: Store) -> bool:
        chosen, predicted = store.get_fact("chosen"), store.get_fact("predicted")
        if chosen is None or predicted is None:
            return False
        store.verify()
        keys = ("spec", "fingerprint", "labels", "confidence", "classes", "way", "remarks", "rounding")
        facts = {key: store.get_fact(key) for key in keys} | {"chosen": chosen, "predicted": predicted}
        for key, value in facts.items():
            if not _is_sound(key, value):
                raise store.damaged(f"the fact {key!r}")
        _check_spec(facts["spec"], self.spec, self._folder)
        _check_data(facts["fingerprint"], self.data)
        images = len(self.data.images)
        if not all(len(facts[key]) == images for key in ("labels", "predicted", "confidence")) or max(chosen) >= images:
            raise store.damaged(f"its facts are not about {images:,} images")
        self._truth = np.asarray(facts["labels"], np.intp)
        seen, confidence = np.asarray(predicted, np.intp), np.asarray(facts["confidence"], np.float64)
        self._clean = CleanPredictions(
            seen,
            seen == self._truth,
            facts["classes"],
            confidence,
            facts["way"],
            remarks=tuple(facts["remarks"] or ()),
        )
        self._chosen = chosen
        self._rounding = facts["rounding"] or "nearest"
        return True

    def in_work(self) -> dict[str, dict[int, JournalEntry]]:
        """What each attack was told of images that have not ended."""
        with Store(self._folder, self.data.images) as store:
            return {name: store.told(name) for name in self._attacks}

    def comparison(self, in_work: Mapping[str, Mapping[int, JournalEntry]] | None = None) -> Comparison:
        """All that was read; images that have not ended count as interrupted, with their queries where `in_work` is."""
        spec, results = self.spec, {}
        for name, attack in self._attacks.items():
            ended = self._outcomes[name]
            told = in_work[name] if in_work else {}
            outcomes = tuple(ended.get(index) or Outcome.unfinished(index, told.get(index)) for index in self._chosen)
            targeted = spec.targets is not None
            loss = spec.loss or attack.own_loss(targeted)
            rounding = attack.rounding if self._rounding == "inward" else self._rounding
            threat = Threat(spec.radius, targeted, loss, spec.scores, spec.eight_bit, rounding)
            counters = Counters.of(ended.values(), self._traffic[name])
            results[name] = Result(
                attack,
                threat,
                spec.budget,
                self.data.images,
                self._truth,
                self._clean,
                outcomes,
                counters,
                self._verified[name],
            )
        return Comparison(results, reference_row(spec.relative_to, self._attacks))


def _is_sound(key: str, value: Any) -> bool:
    """Return whether a fact has the form in which it was written. A file of format 3 has no checksums."""
    match key:
        case "spec":
            return isinstance(value, dict)
        case "fingerprint":
            return isinstance(value, str)
        case "classes":
            return _is_number(value)
        case "way":
            return value is None or isinstance(value, str)
        case "rounding":
            return value in (None, *get_args(Rounding))
        case "remarks":
            return value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value))
        case "confidence":
            return isinstance(value, list) and all(isinstance(each, int | float) for each in value)
        case _:
            return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**31


def data_of(spec: Spec) -> Data:
    """The images that a spec names."""
    return open_data_for(spec.model, spec.data, spec.preprocess)


def facts_of(folder: Path) -> dict[str, Any]:
    """What a reader of a run may want to know besides its results."""
    try:
        environment = json.loads((folder / _ENVIRONMENT).read_text())
    except (OSError, ValueError, RecursionError):  # it is there to be read, and nothing depends on it
        environment = {}
    environment = environment if isinstance(environment, dict) else {}
    return {"spec": asdict(spec_of(folder)), "environment": environment, "classes": classes_of(folder)}


def classes_of(folder: Path) -> tuple[str, ...] | None:
    """The names of the classes of a run's data, where they are known."""
    return data_of(spec_of(folder)).classes


def environment() -> dict[str, Any]:
    """What a reader of the results may want to know of where they come from."""
    return {
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "python": sys.version,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "commit": _commit(),
        "command": sys.argv,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Of the working folder, if it is a repository: the experiment's code, as a rule."""
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()
