"""Execute a run: validate it, prepare it, run each attack, collect the results."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Protocol

import numpy as np

from parsimon.core.engine import Counters, Step
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, ImageSource, JournalEntry, Outcome, Task
from parsimon.errors import InputError, ParsimonError, quote
from parsimon.results.result import Result, Verification
from parsimon.runs.builder import ResultBuilder, all_outcomes, images_left
from parsimon.runs.config import RunConfig
from parsimon.runs.estimate import Estimate, announce, clean_queries
from parsimon.runs.facts import check_version, record_clean, restore_random
from parsimon.runs.preparation import CPU_BATCH, Inputs, Job, Prepared, prepare, validate
from parsimon.runs.progress import Stage, show_progress
from parsimon.runs.store import Store
from parsimon.runs.verification import verify_successes
from parsimon.runs.workers import Driver, EngineConfig, WorkerPool, worker_pool

# Called after each model call with the attack's name, the number of images it attacks, and what the call brought.
Watch = Callable[[str, int, Step], None]
Journal = Mapping[int, JournalEntry]  # by image
OpenStore = Callable[[], AbstractContextManager[Store | None]]

_LOG = logging.getLogger("parsimon")
_LARGEST_CPU_BATCH = 512  # images
# Limits of a larger batch on a CPU: the values of its images, and the queries of all images in flight.
_BATCH_VALUES, _FLIGHT_QUERIES = 2**21, 2**22


def execute(
    config: RunConfig,
    attacks: Mapping[str, Attack],
    inputs: Inputs,
    *,
    open_store: OpenStore = nullcontext,
    watch: Watch | None = None,
) -> dict[str, Result]:
    """Run each attack on the same images, in turn.

    Args:
        config: The settings.
        attacks: The attacks by the names of their rows.
        inputs: Model, images and labels.
        open_store: Opens the run file, after all checks. Stored replies are not queried again.
        watch: Called after each model call.

    After Ctrl-C, images that were not finished count as interrupted, and the last results say that they were stopped.
    An attack without images has no result.
    """
    if watch is not None and not callable(watch):
        raise InputError(f"watch must be a function; got {quote(watch)}")
    job = validate(config, attacks, inputs)
    workers = worker_pool(inputs.model, config.execution, config.defence or (), job.undefended)
    began = time.perf_counter()
    prepared = prepare(job)
    seconds_per_query = (time.perf_counter() - began) / (len(job.images) * clean_queries(prepared.clean.draws))
    results: dict[str, Result] = {}
    with workers as pool, open_store() as store:
        clean, chosen = prepared.clean, prepared.chosen
        if config.execution.progress is not False and (store is None or store.get_fact("predicted") is None):
            announce(Estimate.of(config, attacks, len(chosen), len(job.images), seconds_per_query))
        if store is not None and config.stochastic:
            prepared = restore_random(store, prepared, job)
            clean, chosen = prepared.clean, prepared.chosen
        if store is not None:
            clean = record_clean(store, clean, prepared.labels, chosen, job.undefended)
        runner = _AttackRunner(job, replace(prepared, clean=clean), pool, store, watch)
        builder = ResultBuilder(config, job.images, prepared.labels, clean)
        # White-box attacks come first: they are quick, and if what they need is missing, that shows at once.
        for name in sorted(attacks, key=lambda name: not attacks[name].white_box):
            outcomes, counters, verification = runner.run(name, chosen)
            found = outcomes, counters, verification
            results[name] = builder.build(attacks[name], prepared.threats[name], *found, stopped=runner.stopped)
            if config.skip_fooled is not None and not attacks[name].white_box:
                chosen = images_left(outcomes, config.skip_fooled)
                if not chosen:
                    break
    return {name: results[name] for name in attacks if name in results}


# --- run --------------------------------------------------------------------------------------------------------------


class _Runner(Protocol):
    """An engine in this process, or a driver of worker processes with an engine each."""

    counters: Counters
    stopped: bool

    def stop(self) -> None:
        """Stop after the model calls under way."""

    def run(self, tasks: Sequence[Task], on_step: Callable[[Step], None] | None = None) -> Iterator[Outcome]:
        """Yield each outcome as it comes; call `on_step` after each model call."""


class _Tasks(Sequence[Task]):
    """The images to attack, each read when it is needed."""

    def __init__(
        self, indices: list[int], images: ImageSource, prepared: Prepared, threat: Threat, journal: Journal
    ) -> None:
        self._indices, self._images, self._goals, self._journal = indices, images, prepared.goals, journal
        # The first image of each class that the model predicts. No image is its own example: it is not of its target.
        self._examples: dict[int, int] = {}
        if threat.targeted and threat.loss == "label":
            classes, first = np.unique(prepared.clean.predicted, return_index=True)
            self._examples = dict(zip(classes.tolist(), first.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, number: int) -> Task:  # type: ignore[override]  # slices are not taken
        index = self._indices[number]
        goal = int(self._goals[index])
        example = self._examples.get(goal)
        pixels = None if example is None else np.asarray(self._images[example])
        return Task(index, np.asarray(self._images[index]), goal, self._journal.get(index), pixels)


class _AttackRunner:
    """Runs one attack after another on prepared images, here or with workers, until Ctrl-C."""

    def __init__(
        self, job: Job, prepared: Prepared, pool: WorkerPool | None, store: Store | None, watch: Watch | None
    ) -> None:
        self._job, self._prepared, self._pool, self._store, self._watch = job, prepared, pool, store, watch
        self._batch_size, self._in_flight = _sizes(job, prepared, 1 if pool is None else len(pool.workers))
        self.stopped, self._begun = False, 0

    def run(self, name: str, chosen: list[int]) -> tuple[tuple[Outcome, ...], Counters, Verification | None]:
        """Run one attack; after Ctrl-C, only report what is stored of it."""
        ended: Mapping[int, Outcome] = {}
        counters = Counters()
        if not self.stopped:
            ended, counters = self._attack(name, chosen)
        journal = self._store.journal(name) if self.stopped and self._store is not None else {}
        outcomes = all_outcomes(chosen, ended, journal, self._prepared.threats[name])
        if journal and self._store is not None:  # images that waited for their turn are not in the counters
            self._store.save(name, [], [], sum(outcome.charged for outcome in outcomes))
        verification = None
        # Fresh draws have decided about a random model already.
        if self._job.config.execution.verify and not self.stopped and not self._job.config.stochastic:
            verification = self._verify(name, outcomes)
        return outcomes, counters, verification

    def _attack(self, name: str, chosen: list[int]) -> tuple[dict[int, Outcome], Counters]:
        """Attack the chosen images from where the store left off."""
        job, store = self._job, self._store
        runner = self._runner(name)
        ended = {} if store is None else store.outcomes(name)
        journal = {} if store is None else store.journal(name)
        runner.counters = Counters.of(ended.values(), None if store is None else store.traffic(name))
        left = [index for index in chosen if index not in ended]
        tasks = _Tasks(left, job.images, self._prepared, self._prepared.threats[name], journal)
        if store is not None and len(tasks):
            check_version(store, name, eight_bit=job.config.eight_bit)
        self._begun += 1
        stage = Stage(name, self._begun, len(job.attacks), len(chosen), job.config.budget)
        shown = show_progress(stage, show=job.config.execution.progress)
        with stopping_on_interrupt(runner.stop), shown as line:
            watching = None if self._watch is None else partial(self._watch, name, len(chosen))
            ended |= self._collect(name, runner, tasks, [each for each in (line, watching) if each is not None])
        self.stopped = runner.stopped
        return ended, runner.counters

    def _runner(self, name: str) -> _Runner:
        config = self._engine_config(name)
        return config.engine(self._job.model) if self._pool is None else Driver(self._pool, config)

    def _engine_config(self, name: str) -> EngineConfig:
        job, sizes = self._job, (self._batch_size, self._in_flight, self._prepared.clean.columns)
        threat = self._prepared.threats[name]
        return EngineConfig(job.attacks[name], threat, job.config.budget, job.config.seed, *sizes)

    def _collect(
        self, name: str, runner: _Runner, tasks: _Tasks, observers: Sequence[Callable[[Step], None]]
    ) -> dict[int, Outcome]:
        """Run the tasks, and store every model call as it comes."""
        store = self._store
        ended: dict[int, Outcome] = {}
        unsaved: list[Outcome] = []

        def save(step: Step) -> None:
            if store is not None:
                store.count(name, step.counters.traffic)
                store.save(name, unsaved, step.entries, step.counters.queries)
                unsaved.clear()
            for observe in observers:
                observe(step)

        try:
            for outcome in runner.run(tasks, save):
                ended[outcome.index] = outcome
                if outcome.ended != "interrupted":
                    unsaved.append(outcome)
        finally:
            if store is not None:
                store.count(name, runner.counters.traffic)  # requests without a response, too
        if store is not None:
            store.save(name, unsaved, [], runner.counters.queries)
            if not runner.stopped:
                store.finish(name)
        return ended

    def _verify(self, name: str, outcomes: Sequence[Outcome]) -> Verification | None:
        """Query the successes once more, unless the store has the answer."""
        job, store = self._job, self._store
        stored = None if store is None else store.verification(name)
        if stored is not None:
            return stored
        stop = threading.Event()
        check = partial(verify_successes, job.model, self._engine_config(name), job.images, self._prepared.goals)
        try:
            with stopping_on_interrupt(stop.set):
                found = check(outcomes, stop.is_set)
        except ParsimonError as error:
            _LOG.warning("the successes of %s could not be verified: %s", name, error)
            return None
        finally:
            self.stopped = stop.is_set()
        if found is not None and found.failed:
            share = f"{len(found.failed)} of {found.queried} successes of {name}"
            _LOG.warning("%s do not hold when the model is queried again: do not trust this result", share)
        if found is not None and store is not None:
            store.set_fact(f"verified {name}", asdict(found))
        return found


def _sizes(job: Job, prepared: Prepared, workers: int) -> tuple[int, int]:
    """Return images per batch and images in flight for each worker."""
    config, batch_size = job.config, job.batch_size
    in_flight = config.execution.in_flight
    total = max(256, 4 * batch_size) if in_flight is None else in_flight
    if job.on_cpu and config.batch_size is None and in_flight is None:
        batch_size = _cpu_batch(len(prepared.chosen) // workers, prepared.clean.values, config.budget)
        total = max(total, 2 * workers * batch_size)
    # Each worker must be able to fill its batches, unless the user has set the number in flight.
    return batch_size, max(batch_size if in_flight is None else 1, total // workers)


def _cpu_batch(images: int, values: int, budget: int) -> int:
    """Return the size of a batch on a CPU: larger for more images, since they share its overhead.

    Two batches must fit, so that one can be rendered while the model computes the other.
    """
    size = CPU_BATCH
    while (
        size < _LARGEST_CPU_BATCH
        and 4 * size <= images
        and 2 * size * values <= _BATCH_VALUES
        and 4 * size * budget <= _FLIGHT_QUERIES
    ):
        size *= 2
    return size


@contextmanager
def stopping_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first Ctrl-C; leave a second one to Python."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(*_: object) -> None:
        stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
