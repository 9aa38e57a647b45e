"""Stored runs: a folder with the configuration, the environment and the run file. Start one, resume one, read one."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from parsimon.attacks.registry import attack_rows, reference_row
from parsimon.core.engine import Counters
from parsimon.core.model import Traffic
from parsimon.core.threat import Rounding
from parsimon.core.types import JournalEntry, Outcome
from parsimon.data import Data
from parsimon.data.base import choose
from parsimon.errors import InputError, ModelError, OutageError, StoreError, quote
from parsimon.models import hubs
from parsimon.results.result import Comparison, Result, Verification
from parsimon.runs.builder import ResultBuilder, all_outcomes, images_left, threat_for
from parsimon.runs.config import RunConfig
from parsimon.runs.environment import environment
from parsimon.runs.execute import Watch, execute
from parsimon.runs.facts import RunFacts, rounding_of
from parsimon.runs.inputs import open_data_for, preprocess_for, require_packages
from parsimon.runs.preparation import Inputs
from parsimon.runs.store import Store

_CONFIG, _ENVIRONMENT = "spec.toml", "environment.json"


class NotBegunError(StoreError):
    """A run that has no results yet."""


def run(
    config: RunConfig,
    folder: str | Path,
    *,
    excluded: Collection[int] = (),
    watch: Watch | None = None,
    resumed_by: str | None = None,
    begin: Callable[[], None] | None = None,
    needs_correct: bool = True,
    **execution: Any,
) -> Comparison:
    """Start a run in a folder, or resume the one that is there if it has the same configuration.

    Args:
        config: The settings.
        folder: Where the run is stored.
        excluded: Images that are not attacked, because their result is known.
        watch: Called after each model call.
        resumed_by: The command that continues the run, for messages; by default `parsimon resume` and the folder.
        begin: Called after all checks, before anything is written.
        needs_correct: Refuse a model that classifies no image correctly; otherwise its robust accuracy is 0.
        execution: Replaces settings of the configuration's execution part.
    """
    folder = Path(folder)
    resumed_by = resumed_by or f"parsimon resume {folder}"
    require_packages(config.model, config.data)
    config = _with_preprocessing(config.replace(**execution))
    if is_run(folder) and (changes := config_of(folder).differences(config)):
        raise InputError(f"{folder} holds a run with other settings; it has\n  " + "\n  ".join(changes))
    data = data_of(config)
    attacks = attack_rows(config.attacks)
    reference = reference_row(config.relative_to, attacks)
    rounding: Rounding = "inward"
    if is_run(folder):
        with Store(folder, data.images) as store:
            rounding, begun_without = rounding_of(store), store.get_fact("excluded")
        excluded = excluded if begun_without is None else begun_without

    @contextmanager
    def open_store() -> Iterator[Store]:
        if begin is not None:
            begin()
        folder.mkdir(parents=True, exist_ok=True)
        with Store(folder, data.images, write=True) as store:
            if not is_run(folder):
                write_whole(folder / _ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
                write_whole(folder / _CONFIG, config.toml())
            _record_inputs(store, config, data, folder)
            store.set_fact("excluded", list(excluded))
            try:
                yield store
            except ModelError as error:
                paused = isinstance(error, OutageError)
                hint = "The run is paused, and no charged query is lost." if paused else "The run is stored."
                sentence = f"{str(error).rstrip('.')}. {hint} Continue with: {resumed_by}"
                raise type(error)(sentence) from error.__cause__

    about: dict[str, Any] = {"rounding": rounding, "excluded": excluded, "needs_correct": needs_correct}
    inputs = Inputs(config.model, data.images, data.labels, **about)
    return Comparison(execute(config, attacks, inputs, open_store=open_store, watch=watch), reference, len(excluded))


def resume(folder: str | Path, *, watch: Watch | None = None, **execution: Any) -> Comparison:
    """Resume a run where it stopped, in the middle of an image if need be."""
    return run(config_of(folder), folder, watch=watch, **execution)


def load(folder: str | Path) -> Comparison:
    """Read a run's results without its model; images that have not ended count as interrupted."""
    stored = StoredRun(folder)
    stored.refresh()
    if not stored.begun:
        raise NotBegunError(f"the run in {folder} has not begun: there is nothing to read yet")
    return stored.comparison(stored.journal())


class StoredRun:
    """A run that can be read again and again while another process writes it. Each outcome is read once.

    Attributes:
        config: Its settings.
        data: Its images.
        queries: Charged so far by each attack, including those of images under attack.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.config = config_of(folder)
        self.data = data_of(self.config)
        self.queries: dict[str, int] = {}
        self._attacks = attack_rows(self.config.attacks)
        self._outcomes: dict[str, dict[int, Outcome]] = {name: {} for name in self._attacks}
        self._traffic: dict[str, Traffic | None] = {}
        self._verified: dict[str, Verification | None] = {}
        self._last_row = 0
        self._facts: RunFacts | None = None

    @property
    def begun(self) -> bool:
        """Whether images were chosen: before that there is nothing to read."""
        return self._facts is not None

    def refresh(self) -> list[tuple[str, Outcome]]:
        """Return the outcomes since the last call, in their order, each with its attack's name."""
        with Store(self._folder, self.data.images) as store:
            facts = self._facts or self._read_facts(store)
            if facts is None:
                return []
            ended = store.ended_after(self._last_row)
            self._traffic = {name: store.traffic(name) for name in self._attacks}
            self._verified = {name: store.verification(name) for name in self._attacks}
            self.queries = {name: store.queries(name) for name in self._attacks}
            chosen = set(facts.chosen)
            for _, name, outcome in ended:
                if name not in self._attacks or outcome.index not in chosen:
                    raise store.damaged(f"it has an outcome of {quote(name)} on image {outcome.index}")
        self._facts = facts
        for self._last_row, name, outcome in ended:
            self._outcomes[name][outcome.index] = outcome
        return [(name, outcome) for _, name, outcome in ended]

    def _read_facts(self, store: Store) -> RunFacts | None:
        facts = RunFacts.read(store)
        if facts is not None:
            _check_config(facts.config, self.config, self._folder)
            _check_data(facts.data_fingerprint, self.data)
            images = len(self.data.images)
            confidence = facts.predicted if facts.kind == "labels" else facts.confidence  # labels have none
            lengths = {len(each) for each in (facts.labels, facts.predicted, confidence)}
            if lengths != {images} or max(facts.chosen, default=-1) >= images:
                raise store.damaged(f"its facts are not about {images:,} images")
        return facts

    def journal(self) -> dict[str, dict[int, JournalEntry]]:
        """Return what each attack has learnt of images that have not ended."""
        with Store(self._folder, self.data.images) as store:
            return {name: store.journal(name) for name in self._attacks}

    def comparison(self, journal: Mapping[str, Mapping[int, JournalEntry]] | None = None) -> Comparison:
        """Assemble all that was read. With a journal, images that have not ended have their queries too."""
        facts, config = self._facts, self.config
        assert facts is not None, "there is nothing to assemble before the run has begun"
        labels, clean = np.asarray(facts.labels, np.intp), facts.clean
        builder = ResultBuilder(config, self.data.images, labels, clean)
        targeted, scores = config.targets is not None, facts.kind or config.scores or clean.kind
        rounding, left = facts.rounding or "nearest", facts.chosen
        results: dict[str, Result] = {}
        ended_early = False
        for name, attack in self._attacks.items():
            chosen = facts.chosen if attack.white_box else left
            if ended_early and not attack.white_box:
                continue
            ended = self._outcomes[name]
            threat = threat_for(attack, config, targeted=targeted, scores=scores, rounding=rounding)
            outcomes = all_outcomes(chosen, ended, journal[name] if journal else {}, threat)
            counters = Counters.of(ended.values(), self._traffic[name])
            results[name] = builder.build(attack, threat, outcomes, counters, self._verified[name])
            if config.skip_fooled is not None and not attack.white_box:
                left = images_left(outcomes, config.skip_fooled)
                ended_early = not left
        return Comparison(results, reference_row(config.relative_to, self._attacks), len(facts.excluded or ()))


# --- the folder -------------------------------------------------------------------------------------------------------


def is_run(folder: str | Path) -> bool:
    """Return whether a folder holds a stored run."""
    return (Path(folder) / _CONFIG).exists()


def identity(folder: str | Path) -> str:
    """Return a text that changes when another run is started in the folder's place."""
    try:
        about = (Path(folder) / _CONFIG).stat()
    except OSError as error:
        raise StoreError(f"the run in {folder} cannot be read: {error.strerror}") from error
    return f"{about.st_ino:x}-{about.st_mtime_ns:x}"


def config_of(folder: str | Path) -> RunConfig:
    """Return the configuration of the run in a folder."""
    if not is_run(folder):
        inside = sorted(path.parent for path in Path(folder).glob(f"*/{_CONFIG}"))  # as of a defence, one per attacker
        hint = f". Name one of the runs inside: {', '.join(map(str, inside))}" if inside else ""
        raise NotBegunError(f"{folder} holds no run: there is no {_CONFIG} in it{hint}")
    return RunConfig.read(Path(folder) / _CONFIG)


def data_of(config: RunConfig) -> Data:
    """Open the images that a configuration names, without those that it leaves out."""
    data = open_data_for(config.model, config.data, config.preprocess)
    if config.selection == "correct" or config.images == "all":
        return data
    return data.take(choose(np.ones(len(data.labels), np.bool_), config.images, config.sample))


def classes_of(folder: str | Path) -> tuple[str, ...] | None:
    """Return the names of the classes of a run's data, where they are known."""
    return data_of(config_of(folder)).classes


def facts_of(folder: str | Path) -> dict[str, Any]:
    """Return what a reader of a run may want to know beyond its results."""
    try:
        described = json.loads((Path(folder) / _ENVIRONMENT).read_text())
    except (OSError, ValueError, RecursionError):  # it is there to be read, and nothing depends on it
        described = {}
    described = described if isinstance(described, dict) else {}
    return {"spec": config_of(folder).settings(), "environment": described, "classes": classes_of(folder)}


def write_whole(path: Path, text: str) -> None:
    """Write all or nothing: a configuration that a kill cut short would describe another run."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


def _with_preprocessing(config: RunConfig) -> RunConfig:
    """Add the preprocessing of a hub's model, so that the run can be read where the hub cannot be reached."""
    if not hubs.is_named(config.model):
        return config
    return config.replace(preprocess=preprocess_for(config.model, config.data, config.preprocess))


def _record_inputs(store: Store, config: RunConfig, data: Data, folder: Path) -> None:
    """Record configuration and data of a new run, or check that those of a resumed one have not changed."""
    begun, fingerprint = store.get_fact("spec"), store.get_fact("fingerprint")
    if begun is None:
        store.set_fact("spec", config.settings())
    else:
        _check_config(begun, config, folder)
    if fingerprint is None:
        store.set_fact("fingerprint", data.fingerprint)
    else:
        _check_data(fingerprint, data)


def _check_config(begun: dict[str, Any], config: RunConfig, folder: Path) -> None:
    if changes := RunConfig.of(begun).differences(config):
        raise InputError(
            f"{folder / _CONFIG} has changed since the run was begun, so that it no longer describes its results. "
            "Restore it, or start another run. It was\n  " + "\n  ".join(changes)
        )


def _check_data(begun: str, data: Data) -> None:
    if begun != data.fingerprint:
        raise InputError(
            f"the data {quote(data.name)} have changed since the run was begun (fingerprint {quote(begun)}, now "
            f"{data.fingerprint}), so that its results are about other images. Restore the data, or start a new run."
        )
