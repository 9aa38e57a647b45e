"""An attack on one picture, a query at a time: the engine attacks, and what passes between it and the search is told.

A step is a mapping that is sent to the page as JSON. The first describes the context; then there is one for each query;
the last says how it ended. Sets of blocks are bits, as `numpy.packbits` has them, in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from parsimon import zoo
from parsimon.attacks import Parsimonious
from parsimon.core.engine import Engine, scores_of
from parsimon.core.model import Model
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, Corners, Image, ImageContext, Outcome, Reply, Search, Task
from parsimon.data.cifar10 import CLASSES
from parsimon.data.pictures import Preprocess, read_picture
from parsimon.errors import InputError
from parsimon.models import as_model
from parsimon.report.picture import as_bytes
from parsimon.setsearch import Mask, flipped

NETWORKS = zoo.NAMES
RADII = ("4/255", "8/255", "16/255")
BUDGET = 2000
LARGEST = 10 * 2**20  # bytes of a picture's file

_SIDE = 32  # of what the bundled networks are shown
_PIXELS = 50_000_000  # of a picture before it is made smaller: more than cameras have, less than a bomb
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")

Step = dict[str, Any]


def opened(content: bytes) -> Image:
    """A picture's file as the networks see it: its shorter side made 32 pixels long, and its middle cut out."""
    try:
        with PIL.Image.open(BytesIO(content), formats=_FORMATS) as picture:  # reads its head, and no pixel
            pixels = picture.width * picture.height
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
        pixels = _PIXELS + 1
    except Exception as error:  # a damaged file makes Pillow raise all kinds
        raise InputError(f"this is no picture that can be read: it must be one of {', '.join(_FORMATS)}") from error
    if pixels > _PIXELS:
        raise InputError(f"the picture has more than {_PIXELS:,} pixels: make it smaller")
    return read_picture(BytesIO(content), "the picture", Preprocess(resize=_SIDE, crop=_SIDE))


def bundled(number: int) -> Image:
    """One of the bundled test images."""
    images, _ = zoo.images()
    image: Image = images[number % len(images)]
    return image


def steps(image: Image, network: str, radius: str, budget: int = BUDGET) -> Iterator[Step]:
    """Attack what a bundled network sees in an image, and tell every query."""
    threat = Threat(float(Fraction(radius)))
    oracle = as_model(network)
    scores = scores_of(oracle, image[None])
    label = int(scores.argmax(axis=1)[0])
    low, high = threat.bounds(image)
    yield {
        "context": {
            name: _text(as_bytes(each).tobytes()) for name, each in (("original", image), ("low", low), ("high", high))
        },
        "side": _SIDE,
        "classes": CLASSES,
        "label": label,
        "confidence": float(threat.confidence(scores)[0]),
        "budget": budget,
    }
    ear = _Ear(oracle)
    # One image and one row a call, so that each of the engine's steps is one query. Its counts are those of any run.
    engine = Engine(_Overheard(Parsimonious(), ear), ear, threat, budget=budget, batch_size=1, in_flight=1)
    outcome: Outcome | None = None
    base: Mask | None = None
    for event in engine.events([Task(0, image, label)]):
        if isinstance(event, Outcome):
            outcome = event
            continue
        asked = ear.asked
        (loss,), _, (seen,) = threat.judge(ear.scores, np.array([label]))
        step: Step = {
            "query": event.counters.queries,
            "block": asked.grid.block,
            "flip": asked.flips[0] if asked.flips else None,
            "loss": float(loss),
            "seen": int(seen),
            "confidence": float(threat.confidence(ear.scores)[0]),
            "kept": None if outcome else _kept(asked, ear.asks),
        }
        if asked.base is not base:
            base = asked.base
            step["base"] = _text(np.packbits(base).tobytes())
        yield step
    if outcome is not None:
        yield {"ended": outcome.ended, "queries": outcome.queries}


class _Ear(Model):
    """The model, and what passes between it and a search that asks for corners alone, one at a time."""

    def __init__(self, oracle: Model) -> None:
        self._oracle = oracle
        self.namespace, self.device, self.fixed_batch = oracle.namespace, oracle.device, oracle.fixed_batch
        self.asks: Corners  # what the search asks now
        self.answered = 0  # of it
        self.asked: Corners  # what the model was shown last: a base, with one flip or none
        self.scores: NDArray[Any]

    def __call__(self, images: Any) -> NDArray[Any]:
        self.scores = self._oracle(images)
        self.asked = self.asks._replace(flips=self.asks.flips[self.answered : self.answered + 1])
        self.answered += 1
        return self.scores


@dataclass(frozen=True)
class _Overheard(Attack):
    """An attack whose questions are heard."""

    attack: Attack
    ear: _Ear

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        search = self.attack.search(context, rng)
        reply: Reply | None = None
        while True:
            try:
                ask = next(search) if reply is None else search.send(reply)
            except StopIteration:
                return
            assert isinstance(ask.points, Corners), "Parsimonious asks for nothing else"
            self.ear.asks, self.ear.answered = ask.points, 0
            reply = yield ask


def _kept(asked: Corners, asks: Corners) -> int | None:
    """The block by which the working set changed upon the reply, as the next question shows; None if it did not."""
    if asks.grid is not asked.grid:  # the search has gone on to smaller blocks
        (flip,) = asked.flips or (None,)
        changed = None if flip is None else asked.grid.split(flipped(asked.base, flip))
        return flip if changed is not None and np.array_equal(changed, asks.base) else None
    blocks = np.flatnonzero(asked.base != asks.base)
    return int(blocks[0]) if len(blocks) == 1 else None


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
