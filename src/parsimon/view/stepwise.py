"""An attack on one picture, one query at a time: the engine attacks, and a recorder watches its queries.

A step is a mapping, sent to the page as JSON. The first step describes the picture, the last one the outcome, and each
one between them a query. Sets of blocks are bits in base64, in the order of `numpy.packbits`.
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

_SIDE = 32  # pixels, of the bundled networks' images
_PIXELS = 50_000_000  # before resizing: more than cameras have, less than a decompression bomb
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")

Step = dict[str, Any]


def opened(content: bytes) -> Image:
    """Return a picture's file as a 32 x 32 image: resized by its shorter side and cropped to its centre."""
    try:
        with PIL.Image.open(BytesIO(content), formats=_FORMATS) as picture:  # reads only its header
            pixels = picture.width * picture.height
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
        pixels = _PIXELS + 1
    except Exception as error:  # Pillow raises all kinds of them for damaged files
        raise InputError(f"this is no picture that can be read: it must be one of {', '.join(_FORMATS)}") from error
    if pixels > _PIXELS:
        raise InputError(f"the picture has more than {_PIXELS:,} pixels: make it smaller")
    return read_picture(BytesIO(content), "the picture", Preprocess(resize=_SIDE, crop=_SIDE))


def bundled(number: int) -> Image:
    """Return one of the bundled test images."""
    images, _ = zoo.images()
    image: Image = images[number % len(images)]
    return image


def steps(image: Image, network: str, radius: str, budget: int = BUDGET) -> Iterator[Step]:
    """Attack a bundled network on an image, with its prediction as the label, and yield every query."""
    threat = Threat(float(Fraction(radius)))
    model = as_model(network)
    scores = scores_of(model, image[None])
    label = int(scores.argmax(axis=1)[0])
    low, high = threat.bounds(image)
    pictures = {"original": image, "low": low, "high": high}
    yield {
        "pictures": {name: _text(as_bytes(each).tobytes()) for name, each in pictures.items()},
        "side": _SIDE,
        "classes": CLASSES,
        "label": label,
        "confidence": float(threat.confidence(scores)[0]),
        "budget": budget,
    }
    recorder = _Recorder(model)
    # One image and one row per batch, so that each step of the engine is one query.
    attack = _RecordedAttack(Parsimonious(), recorder)
    engine = Engine(attack, recorder, threat, budget=budget, batch_size=1, in_flight=1)
    outcome: Outcome | None = None
    base: Mask | None = None
    for event in engine.events([Task(0, image, label)]):
        if isinstance(event, Outcome):
            outcome = event
            continue
        asked = recorder.last
        (loss,), _, (seen,) = threat.judge(recorder.scores, np.array([label]))
        step: Step = {
            "query": event.counters.queries,
            "block": asked.grid.block,
            "flip": asked.flips[0] if asked.flips else None,
            "loss": float(loss),
            "seen": int(seen),
            "confidence": float(threat.confidence(recorder.scores)[0]),
            "kept": None if outcome else _kept(asked, recorder.current),
        }
        if asked.base is not base:
            base = asked.base
            step["base"] = _text(np.packbits(base).tobytes())
        yield step
    if outcome is not None:
        yield {"ended": outcome.ended, "queries": outcome.queries}


class _Recorder(Model):
    """A model that records the queries of a search for corners, one row per call."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.namespace, self.device, self.fixed_batch = model.namespace, model.device, model.fixed_batch
        self.current: Corners  # of the search's current request
        self.answered = 0  # rows of that request
        self.last: Corners  # of the last query: a base, with one flip or none
        self.scores: NDArray[Any]

    def __call__(self, images: Any) -> NDArray[Any]:
        self.scores = self._model(images)
        self.last = self.current._replace(flips=self.current.flips[self.answered : self.answered + 1])
        self.answered += 1
        return self.scores


@dataclass(frozen=True)
class _RecordedAttack(Attack):
    """An attack that shows each of its requests to the recorder."""

    attack: Attack
    recorder: _Recorder

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        search = self.attack.search(context, rng)
        reply: Reply | None = None
        while True:
            try:
                ask = next(search) if reply is None else search.send(reply)
            except StopIteration:
                return
            assert isinstance(ask.points, Corners), "Parsimonious asks for nothing else"
            self.recorder.current, self.recorder.answered = ask.points, 0
            reply = yield ask


def _kept(last: Corners, current: Corners) -> int | None:
    """Return the block that the last reply changed in the working set, as the next request shows; None if none."""
    if current.grid is not last.grid:  # the search has moved to smaller blocks
        (flip,) = last.flips or (None,)
        changed = None if flip is None else last.grid.split(flipped(last.base, flip))
        return flip if changed is not None and np.array_equal(changed, current.base) else None
    blocks = np.flatnonzero(last.base != current.base)
    return int(blocks[0]) if len(blocks) == 1 else None


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
