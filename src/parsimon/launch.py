"""Run attacks: check the input once, then give each attack an engine of its own, here or in many workers."""

from __future__ import annotations

import base64
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

import parsimon
from parsimon import checks
from parsimon.checks import ImageSource, Prepared
from parsimon.data.choice import choose
from parsimon.engine import Step, Tally
from parsimon.errors import InputError, ParsimonError, quote
from parsimon.given import as_images, as_numpy
from parsimon.oracles import as_oracle
from parsimon.protocol import Attack, Oracle, Outcome, Task, Told
from parsimon.report import progress as progress_line
from parsimon.result import Result
from parsimon.settings import check_settings
from parsimon.spec import Spec
from parsimon.store import Store
from parsimon.threat import Loss, Rounding, Scores, Threat
from parsimon.verify import Verification, verify_successes
from parsimon.workers import Driver, Plan, crew_for

# Told of each model call: the attack, on how many images it is, and what the call has brought.
Watch = Callable[[str, int, Step], None]

_LOG = logging.getLogger("parsimon")
_BATCH = 256  # images on an accelerator
_SMALL, _LARGE = 64, 512  # on a CPU
# On a CPU, of a larger batch: the values of its images, and the queries of those in work, which searches may remember.
_VALUES, _QUERIES = 2**21, 2**22


class Means(TypedDict, total=False):
    """With what a run is made. None of it changes a result, and all of it may be left out."""

    in_flight: int | None
    workers: int | None
    ray: str | None
    progress: bool | None
    verify: bool
    watch: Watch | None


class Runner(Protocol):
    """What attacks images with one attack: an engine in this process, or workers with an engine each."""

    tally: Tally
    threat: Threat
    stopped: bool

    def stop(self) -> None:
        """End after the model calls in work."""

    def run(self, tasks: Sequence[Task], on_step: Callable[[Step], None] | None = None) -> Iterator[Outcome]:
        """Each outcome as it comes; `on_step` is called after each model call."""


def launch(
    attacks: Mapping[str, Attack],
    model: Any,
    images: Any,
    labels: Any,
    eps: float,
    *,
    budget: int = Spec.budget,
    targets: Any = None,
    loss: Loss | None = None,
    scores: Scores | None = "logits",
    eight_bit: bool = False,
    at_most: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    in_flight: int | None = None,
    workers: int | None = None,
    ray: str | None = None,
    progress: bool | None = None,
    verify: bool = True,
    rounding: Rounding = "inward",
    survivors_only: bool = False,
    watch: Watch | None = None,
    open_store: Callable[[], AbstractContextManager[Store | None]] = nullcontext,
) -> dict[str, Result]:
    """Each attack on the same images, in turn; see `parsimon.attack` for the settings.

    With a store, all that is told is written down, and what is written there already is not asked again. It is opened
    after the checks, so that a run that is refused leaves no trace. After Ctrl-C the images that were not finished
    count as interrupted, and all those of attacks that were not begun. With `survivors_only`, each attack meets the
    images that none before it fooled; those that meet none have no result.
    """
    check_settings(budget=budget, loss=loss, scores=scores, eight_bit=eight_bit, at_most=at_most, sample=sample)
    check_settings(seed=seed, batch_size=batch_size, in_flight=in_flight, workers=workers, ray=ray)
    check_settings(progress=progress, verify=verify, watch=watch)
    oracle = as_oracle(model)
    source = as_images(images)
    on_cpu = str(oracle.device) == "cpu"
    enlarge = on_cpu and batch_size is None and in_flight is None
    if batch_size is None:
        batch_size = _SMALL if on_cpu else _BATCH
    threat = Threat(eps, targets is not None, loss or "cross-entropy", scores or "logits", eight_bit)
    if scores is None:
        threat = replace(threat, scores=checks.scores_kind(oracle, source, batch_size))
    room = max(256, 4 * batch_size) if in_flight is None else in_flight
    threats = {
        name: replace(
            threat,
            loss=loss or attack.own_loss(threat.targeted),
            rounding=attack.rounding if rounding == "inward" else rounding,
        )
        for name, attack in attacks.items()
    }
    for each in threats.values():
        checks.check_threat(oracle, each)
    plans = {name: Plan(attacks[name], threats[name], budget, seed, batch_size, room) for name in attacks}
    for plan in plans.values():
        plan.engine(oracle)  # which says what is wrong with the settings before anything is computed
    many = crew_for(model, workers, ray)

    as_predicted = isinstance(labels, str) and labels == "predicted"
    known = None if as_predicted else checks.check_labels(as_numpy(labels, "labels"), len(source))
    prepared = checks.prepare(oracle, source, known, threat, batch_size)
    truth = prepared.predicted if known is None else known
    goals, attackable = truth, prepared.correct
    if targets is not None:
        goals = _goals(targets, known, truth, prepared.classes)
        attackable = prepared.correct & (goals != truth)
    checks.check_any(prepared, attackable)
    chosen = choose(attackable, at_most, sample).tolist()
    show = sys.stderr.isatty() if progress is None else progress

    results = {}
    with many as crew, open_store() as store:
        if store is not None:
            prepared = _hold(store, prepared, truth, chosen)
        crowd = 1 if crew is None else len(crew.workers)
        if enlarge:
            batch_size = _enlarged(len(chosen) // crowd, prepared.values, budget)
            room = max(room, 2 * crowd * batch_size)
        # Each worker must be able to fill its batches, unless the user has set what there is room for.
        room = max(batch_size if in_flight is None else 1, room // crowd)
        plans = {
            name: replace(plan, batch_size=batch_size, in_flight=room, classes=prepared.classes)
            for name, plan in plans.items()
        }
        stopped = False
        # White-box attacks first: they are quick, and if what they need is missing, that shows at once.
        for name in sorted(attacks, key=lambda name: not attacks[name].white_box):
            ended: dict[int, Outcome] = {}
            tally = Tally()
            if not stopped:
                runner: Runner = plans[name].engine(oracle) if crew is None else Driver(crew, plans[name])
                with _stopping_on_interrupt(runner.stop), progress_line.live(name, len(chosen), show=show) as line:
                    told = [each for each in (line, watch and partial(watch, name, len(chosen))) if each is not None]
                    ended = _attack_all(runner, name, chosen, source, goals, store, told)
                tally, stopped = runner.tally, runner.stopped
            in_work = store.told(name) if stopped and store is not None else {}
            outcomes = tuple(ended.get(index) or Outcome.unfinished(index, in_work.get(index)) for index in chosen)
            if in_work and store is not None:  # with images that waited for their turn, which no tally has met
                store.save(name, [], [], sum(outcome.queries for outcome in outcomes))
            verification = None
            if verify and not stopped:
                verification, stopped = _verified(
                    store, name, oracle, threats[name], source, goals, outcomes, batch_size, prepared.classes
                )
            results[name] = Result(
                attacks[name], threats[name], budget, source, truth, prepared, outcomes, tally, verification
            )
            if survivors_only:
                chosen = [outcome.index for outcome in outcomes if not outcome.success]
            if not chosen:
                break
    return {name: results[name] for name in attacks if name in results}


class _Tasks(Sequence[Task]):
    """The images to attack, each read when it is asked for."""

    def __init__(
        self, indices: list[int], source: ImageSource, goals: NDArray[np.intp], told: Mapping[int, Told]
    ) -> None:
        self._indices, self._source, self._goals, self._told = indices, source, goals, told

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, place: int) -> Task:  # type: ignore[override]  # nobody takes slices of them
        index = self._indices[place]
        return Task(index, np.asarray(self._source[index]), int(self._goals[index]), self._told.get(index))


def _enlarged(images: int, values: int, budget: int) -> int:
    """The size of a batch on a CPU: larger for more images, since what it costs beside the model is shared by them.

    There must be images for two, so that one can be drawn while the model looks at the other.
    """
    size = _SMALL
    while size < _LARGE and 4 * size <= images and 2 * size * values <= _VALUES and 4 * size * budget <= _QUERIES:
        size *= 2
    return size


def _attack_all(
    runner: Runner,
    name: str,
    chosen: list[int],
    source: ImageSource,
    goals: NDArray[np.intp],
    store: Store | None,
    on_step: Sequence[Callable[[Step], None]],
) -> dict[int, Outcome]:
    """One attack on the chosen images, from where the store says that it was left off."""
    ended = {} if store is None else store.outcomes(name)
    told = {} if store is None else store.told(name)
    runner.tally = Tally.of(ended.values(), None if store is None else store.traffic(name))
    tasks = _Tasks([index for index in chosen if index not in ended], source, goals, told)
    if store is not None and len(tasks) and not _asks_alike(store.known("parsimon"), runner.threat, name):
        _hold_to(store, "parsimon", parsimon.__version__, "parsimon", "may ask its questions otherwise")
    unsaved: list[Outcome] = []

    def save(step: Step) -> None:
        if store is not None:
            store.count(name, step.tally.traffic)
            store.save(name, unsaved, step.told, step.tally.queries)
            unsaved.clear()
        for tell in on_step:
            tell(step)

    try:
        for outcome in runner.run(tasks, save):
            ended[outcome.index] = outcome
            if outcome.ended != "interrupted":
                unsaved.append(outcome)
    finally:
        if store is not None:
            store.count(name, runner.tally.traffic)  # what was sent in vain, too
    if store is not None:
        store.save(name, unsaved, [], runner.tally.queries)
        if not runner.stopped:
            store.finish(name)
    return ended


def _asks_alike(version: str | None, threat: Threat, attack: str) -> bool:
    """Return whether the searches of an earlier version ask what those of this one do.

    Version 0.2 showed 8-bit models probes of NES and Bandits outside [0, 1].
    """
    probes = attack.startswith(("NES", "Bandits"))
    return version == "0.2.0" and not (threat.eight_bit and probes)


def _verified(
    store: Store | None,
    name: str,
    oracle: Oracle,
    threat: Threat,
    source: ImageSource,
    goals: NDArray[np.intp],
    outcomes: Sequence[Outcome],
    batch_size: int,
    classes: int,
) -> tuple[Verification | None, bool]:
    """Query the successes once more, unless the store says that it was done; also return whether Ctrl-C ended it."""
    stored = None if store is None else store.verification(name)
    if stored is not None:
        return stored, False
    stop = threading.Event()
    try:
        with _stopping_on_interrupt(stop.set):
            found = verify_successes(oracle, threat, source, goals, outcomes, batch_size, classes, stop.is_set)
    except ParsimonError as error:
        _LOG.warning("the successes of %s could not be verified: %s", name, error)
        return None, False
    if found is not None and found.failed:
        _LOG.warning(
            "%d of %d successes of %s do not hold when the model is queried again: do not trust this result",
            len(found.failed),
            found.queried,
            name,
        )
    if found is not None and store is not None:
        store.know(f"verified {name}", asdict(found))
    return found, stop.is_set()


def _hold(store: Store, prepared: Prepared, truth: NDArray[np.intp], chosen: list[int]) -> Prepared:
    """Record what the model makes of the clean images, or check that it is still the same model."""
    facts = {
        "classes": prepared.classes,
        "labels": truth.tolist(),
        "predicted": prepared.predicted.tolist(),
        "chosen": chosen,
    }
    if store.known("predicted") is None:  # a run of version 0.2 lacks this fact, and its bounds are the nearest floats
        store.know("rounding", "inward")
    if store.known("confidence") is None:  # not held to: another machine may round its last digits otherwise
        store.know("confidence", prepared.confidence.tolist())
    for key, value in facts.items():
        store.hold(key, value)
    if prepared.way is not None:
        _hold_to(store, "way", prepared.way, "the model run by", "rounds otherwise")
    assert prepared.scores is not None, "it was prepared here, not read from a run"
    before = store.known("scores")
    if before is None:
        store.know("scores", packed_scores(prepared.scores))
    else:
        checks.check_same_model(unpacked_scores(before), prepared.scores)
    if prepared.fingerprint is not None:
        store.hold("model file", prepared.fingerprint)
    begun = store.known("runtime")
    if begun is None:
        store.know("runtime", prepared.runtime)
    elif begun != prepared.runtime:
        remarks = store.known("remarks") or []
        remark = f"The run was begun with {begun} and continued with {prepared.runtime}, which may round differently."
        if remark not in remarks:
            store.know("remarks", [*remarks, remark])
            _LOG.warning("%s", remark)
    return replace(prepared, remarks=tuple(store.known("remarks") or ()))


def packed_scores(scores: NDArray[np.float32]) -> dict[str, Any]:
    """Return scores as a fact of a run."""
    return {"shape": scores.shape, "float32": base64.b64encode(scores.tobytes()).decode()}


def unpacked_scores(fact: dict[str, Any]) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(fact["float32"]), np.float32).reshape(fact["shape"])


def _hold_to(store: Store, key: str, value: str, what: str, why: str) -> None:
    """See that the rest of a run is made as its beginning was."""
    begun = store.known(key) or value
    if begun != value:
        raise InputError(
            f"this run was begun with {what} {begun}; here it would go on with {what} {value}, which {why}, so going "
            "on would mix results. Go on as before, or start a new run."
        )
    store.know(key, begun)


def _goals(targets: Any, known: NDArray[np.intp] | None, truth: NDArray[np.intp], classes: int) -> NDArray[np.intp]:
    if not isinstance(targets, str):
        return checks.check_targets(as_numpy(targets, "targets"), known, len(truth), classes)
    if targets == "next":
        return (truth + 1) % classes
    if targets == "random":
        return np.array([_random_class(index, int(label), classes) for index, label in enumerate(truth)], np.intp)
    raise InputError(f"targets must be one class for each image, or 'next' or 'random'; got {quote(targets)}")


def _random_class(index: int, label: int, classes: int) -> int:
    """A class other than the image's own, drawn as the paper's authors draw it: by the image's number alone."""
    rng = np.random.RandomState(index)
    while (target := int(rng.randint(classes))) == label:
        pass
    return target


@contextmanager
def _stopping_on_interrupt(stop_it: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C stops the work after the batch in work; a second one is Python's own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        stop_it()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
