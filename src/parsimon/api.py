"""`parsimon.attack`: a model, images and labels to a result."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import checks
from parsimon.attacks import Parsimonious
from parsimon.canvas import render
from parsimon.checks import ImageSource, Prepared
from parsimon.engine import Engine, Tally
from parsimon.errors import InputError, first_line
from parsimon.oracles import as_oracle
from parsimon.protocol import Attack, Image, Outcome, Task
from parsimon.report import progress as progress_line
from parsimon.report.table import as_text, results_table
from parsimon.summary import Summary, summarise
from parsimon.threat import Loss, Scores, Threat

DEFAULT_BUDGET = 2000


@dataclass(frozen=True)
class Result:
    """What an attack did to the given images. Arrays have an entry for each of them, in their order.

    An image that the model misclassifies to begin with is not attacked; `attacked` tells which were.
    """

    attack: Attack
    threat: Threat
    budget: int
    images: ImageSource
    labels: NDArray[np.intp]
    prepared: Prepared
    outcomes: tuple[Outcome, ...]  # of the attacked images, in order
    tally: Tally

    @property
    def attacked(self) -> NDArray[np.bool_]:
        return self._spread(np.zeros(len(self.labels), np.bool_), [True] * len(self.outcomes))

    @property
    def success(self) -> NDArray[np.bool_]:
        """Where the model was fooled within the budget."""
        return self._spread(np.zeros(len(self.labels), np.bool_), [each.success for each in self.outcomes])

    @property
    def queries(self) -> NDArray[np.int64]:
        """Charged queries; 0 where an image was not attacked."""
        return self._spread(np.zeros(len(self.labels), np.int64), [each.queries for each in self.outcomes])

    @property
    def adversarial(self) -> NDArray[np.float32]:
        """All images, those that were fooled as their adversarial ones. Drawn anew each time."""
        images = np.stack([np.asarray(self.images[index]) for index in range(len(self.labels))])
        for outcome in self.outcomes:
            if outcome.point is not None:
                images[outcome.index] = self.draw(outcome)
        return images

    def draw(self, outcome: Outcome) -> Image:
        """The adversarial image of a success."""
        if outcome.point is None:
            raise InputError(f"image {outcome.index} was not fooled, so it has no adversarial image")
        return render(np.asarray(self.images[outcome.index]), self.threat, outcome.point)

    @property
    def summary(self) -> Summary:
        return summarise(self.outcomes)

    def __str__(self) -> str:
        return as_text(self.table())

    def table(self) -> Any:
        """The results as a table for a terminal."""
        goal = "targeted" if self.threat.targeted else "untargeted"
        eps = f"{self.threat.eps * 255:.4g}/255"
        title = f"eps {eps}, {goal}, {self.threat.loss}, at most {self.budget:,} queries an image"
        return results_table(title, type(self.attack).__name__, self.summary, self.prepared.accuracy)

    def _spread(self, array: NDArray[Any], values: list[Any]) -> NDArray[Any]:
        array[[outcome.index for outcome in self.outcomes]] = values
        return array


def attack(
    model: Any,
    images: Any,
    labels: Any,
    eps: float,
    *,
    attack: Attack | None = None,
    budget: int = DEFAULT_BUDGET,
    targets: Any = None,
    loss: Loss = "cross-entropy",
    scores: Scores = "logits",
    eight_bit: bool = False,
    at_most: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    in_flight: int | None = None,
    progress: bool | None = None,
) -> Result:
    """Attack every image that the model classifies correctly, and say how many queries each took.

    Ctrl-C ends the attack after the model call in work; the result then says which images are unfinished.

    Args:
        model: A torch module, the path of an ONNX file, an onnxruntime session, a function of numpy images, or the name
            of a bundled network (`robust`, `standard`).
        images: numpy or torch, (n, channels, rows, columns), float32 in [0, 1]; or any sequence that reads its images
            when they are asked for.
        labels: The true classes.
        eps: The radius of the L-infinity ball, for images in [0, 1].
        attack: The attack with its settings; the paper's by default.
        budget: Queries allowed for each image.
        targets: Classes to reach, for a targeted attack; `"next"`: the class after the true one, as the paper's authors
            do for CIFAR-10. Without targets, any class but the true one will do.
        loss: See `Threat`.
        scores: See `Threat`.
        eight_bit: See `Threat`.
        at_most: Attack only the first so many correctly classified images.
        seed: Of the attack's random choices. An image's result depends on it and on the image's place in `images`.
        batch_size: Images in a model call; 64 on a CPU, 256 on other devices.
        in_flight: Images attacked at once; it sets the memory that is used.
        progress: Show a live line on standard error; by default if that is a terminal.
    """
    oracle = as_oracle(model)
    threat = Threat(eps, targets is not None, loss, scores, eight_bit)
    if batch_size is None:
        batch_size = 64 if str(oracle.device) == "cpu" else 256
    if in_flight is None:
        in_flight = max(256, 4 * batch_size)
    attack = Parsimonious() if attack is None else attack
    engine = Engine(attack, oracle, threat, budget=budget, seed=seed, batch_size=batch_size, in_flight=in_flight)

    source = as_images(images)
    truth = checks.check_labels(as_numpy(labels, "labels"), len(source))
    if at_most is not None and at_most < 1:
        raise InputError(f"at_most must be at least 1 image, or None for all of them; got {at_most}")
    prepared = checks.prepare(oracle, source, truth, threat, batch_size)
    if targets is None:
        goals = truth
    elif isinstance(targets, str):
        if targets != "next":
            raise InputError(f"targets must be one class for each image, or 'next'; got {targets!r}")
        goals = (truth + 1) % prepared.classes
    else:
        goals = checks.check_targets(as_numpy(targets, "targets"), truth, prepared.classes)
    chosen = np.flatnonzero(prepared.correct)[:at_most].tolist()
    tasks = (Task(index, np.asarray(source[index]), int(goals[index])) for index in chosen)
    show = sys.stderr.isatty() if progress is None else progress
    with _stopping_on_interrupt(engine), progress_line.live(len(chosen), show=show) as on_step:
        outcomes = {outcome.index: outcome for outcome in engine.run(tasks, on_step)}
    # After Ctrl-C some may not even have been begun.
    every = tuple(outcomes.get(index) or Outcome(index, False, 0, "interrupted") for index in chosen)
    return Result(attack, threat, budget, source, truth, prepared, every, engine.tally)


def as_images(images: Any) -> ImageSource:
    """Arrays of any framework as numpy, and sequences that read lazily as they are."""
    if hasattr(images, "shape"):
        pixels = as_numpy(images, "images")
        if pixels.ndim != 4:
            hint = ": use images[None] for a single image" if pixels.ndim == 3 else ""
            raise InputError(f"images must have shape (number, channels, rows, columns); got {pixels.shape}{hint}")
        return pixels
    if hasattr(images, "__len__") and hasattr(images, "__getitem__") and not isinstance(images, Mapping | str):
        source: ImageSource = images
        return source
    raise InputError(f"images must be an array or a sequence of arrays; got {type(images).__name__}")


def as_numpy(array: Any, what: str) -> NDArray[Any]:
    """A numpy or torch array as numpy, from whatever device."""
    try:
        return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    except (TypeError, ValueError) as error:  # of rows that differ in length, or of a type that numpy lacks
        raise InputError(f"{what} must be an array of numbers; numpy cannot read them: {first_line(error)}") from error


@contextmanager
def _stopping_on_interrupt(engine: Engine) -> Iterator[None]:
    """The first Ctrl-C stops the engine after its batch; a second one is Python's own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        engine.stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
