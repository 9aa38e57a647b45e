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
from typing import Any, Unpack

import numpy as np

from parsimon.api import named_rows, row_named
from parsimon.checks import Prepared
from parsimon.data import Data, open_data_for, preprocess_for
from parsimon.engine import Tally
from parsimon.errors import InputError, OutageError, StoreError
from parsimon.launch import Means, launch
from parsimon.oracles import hubs
from parsimon.protocol import Attack, Outcome
from parsimon.result import Comparison, Result
from parsimon.spec import Spec
from parsimon.store import Store
from parsimon.threat import Threat

_SPEC, _ENVIRONMENT = "spec.toml", "environment.json"
_PACKAGES = (
    *("parsimon", "numpy", "array-api-compat", "onnxruntime", "torch", "tritonclient"),
    *("transformers", "timm", "robustbench"),
)


def run(spec: Spec, folder: Path, **means: Unpack[Means]) -> Comparison:
    """Begin a run in a folder, or go on with the one that is there if it is of the same spec."""
    spec = _written_out(spec)
    if is_run(folder) and (changes := spec_of(folder).differences(spec)):
        raise InputError(f"{folder} holds a run of another spec; it says\n  " + "\n  ".join(changes))
    data = data_of(spec)
    rows = named_rows(spec.attacks)

    @contextmanager
    def open_store() -> Iterator[Store]:
        folder.mkdir(parents=True, exist_ok=True)
        with Store(folder, data.images, write=True) as store:
            if not is_run(folder):
                _write(folder / _ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
                _write(folder / _SPEC, spec.toml())
            store.hold("fingerprint", data.fingerprint)
            try:
                yield store
            except OutageError as error:
                told = f"The run is paused, and all that it was told is saved. Go on with: parsimon resume {folder}"
                raise OutageError(f"{error}. {told}") from None

    results = launch_spec(spec, rows, data, open_store=open_store, **means)
    return Comparison(results, row_named(spec.relative_to, rows))


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
    open_store: Callable[[], AbstractContextManager[Store | None]] = nullcontext,
    **means: Unpack[Means],
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


def spec_of(folder: Path) -> Spec:
    """What the run in a folder is a run of."""
    if not is_run(folder):
        raise StoreError(f"{folder} holds no run: there is no {_SPEC} in it")
    return Spec.read(folder / _SPEC)


def resume(folder: Path, **means: Unpack[Means]) -> Comparison:
    """Go on with a run where it was left off, in the middle of an image if need be."""
    return run(spec_of(folder), folder, **means)


def load(folder: Path) -> Comparison:
    """A run's results so far, read without its model; images that have not ended count as interrupted."""
    spec = spec_of(folder)
    rows = named_rows(spec.attacks)
    images = data_of(spec).images
    with Store(folder, images) as store:
        chosen, predicted = store.known("chosen"), store.known("predicted")
        if chosen is None or predicted is None:
            raise StoreError(f"the run in {folder} was not begun: there is nothing to read yet")
        truth = np.asarray(store.known("labels"), np.intp)
        seen = np.asarray(predicted, np.intp)
        confidence = np.asarray(store.known("confidence"))
        prepared = Prepared(seen, seen == truth, store.known("classes"), confidence, store.known("way"))
        results = {}
        for name, attack in rows.items():
            ended = store.outcomes(name)
            outcomes = tuple(ended.get(index) or Outcome(index, False, 0, "interrupted") for index in chosen)
            targeted = spec.targets is not None
            loss = spec.loss or attack.own_loss(targeted)
            threat = Threat(spec.radius, targeted, loss, spec.scores, spec.eight_bit)
            tally = Tally.of(ended.values(), store.traffic(name))
            results[name] = Result(attack, threat, spec.budget, images, truth, prepared, outcomes, tally)
    return Comparison(results, row_named(spec.relative_to, rows))


def data_of(spec: Spec) -> Data:
    """The images that a spec names."""
    return open_data_for(spec.model, spec.data, spec.preprocess)


def facts_of(folder: Path) -> dict[str, Any]:
    """What a reader of a run may want to know besides its results."""
    environment = json.loads((folder / _ENVIRONMENT).read_text())
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
