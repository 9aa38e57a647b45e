"""An attack on one picture, one query at a time: the engine attacks, and a recorder watches its queries.

A step is a mapping, sent to the page as JSON. The first step describes the picture, the last one the outcome, and each
one between them a query. Steps of Parsimonious hold sets of its blocks, as bits in base64 in the order of
`numpy.packbits`. Steps of every other attack hold the queried pictures, made small.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from typing import Any

import array_api_compat
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from parsimon import zoo
from parsimon.attacks import ATTACKS, Parsimonious
from parsimon.core.engine import Engine, scores_of
from parsimon.core.engine import Step as EngineStep
from parsimon.core.model import Model
from parsimon.core.threat import Scores, Threat
from parsimon.core.types import Attack, Corners, Image, ImageContext, Images, Outcome, Search, Task, next_ask
from parsimon.data.cifar10 import CLASSES
from parsimon.data.pictures import Preprocess, read_picture
from parsimon.errors import InputError
from parsimon.models import as_model
from parsimon.report.picture import as_rgb
from parsimon.setsearch import Mask, flipped

NETWORKS = zoo.NAMES
# The page shows the loss of each query, which a label-only attack does not have.
BLACK_BOX = tuple(name for name, attack in ATTACKS.items() if attack.needs not in ("label", "gradient"))
RADII = ("4/255", "8/255", "16/255")
BUDGET = 2000
LARGEST = 10 * 2**20  # bytes of a picture's file

_SHOWN = 64  # pixels along a side of a picture in a step: thousands of them are kept by the page
_PIXELS = 50_000_000  # before resizing: more than cameras have, less than a decompression bomb
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")

Step = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A model that pictures can be attacked on.

    Attributes:
        model: Its name.
        shape: Of its images: channels, rows and columns.
        classes: Their names, as far as they are known.
        sample: Returns an image by its number.
        scores: What the model returns.
    """

    model: str
    shape: tuple[int, int, int]
    classes: Sequence[str]
    sample: Callable[[int], Image]
    scores: Scores = "logits"

    def opened(self, content: bytes) -> Image:
        """Return a picture's file as an image of this shape: resized by its shorter side and cropped to its centre."""
        try:
            with PIL.Image.open(BytesIO(content), formats=_FORMATS) as picture:  # reads only its header
                pixels = picture.width * picture.height
        except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
            pixels = _PIXELS + 1
        except Exception as error:  # Pillow raises all kinds of them for damaged files
            raise InputError(f"this is no picture that can be read: it must be one of {', '.join(_FORMATS)}") from error
        if pixels > _PIXELS:
            raise InputError(f"the picture has more than {_PIXELS:,} pixels: make it smaller")
        channels, rows, columns = self.shape
        if channels not in (1, 3):
            raise InputError(f"pictures have 1 or 3 channels, and the images of this model {channels}")
        resize = rows if rows == columns else (rows, columns)
        preprocess = Preprocess(resize=resize, crop=(rows, columns), channels=1 if channels == 1 else 3)
        return read_picture(BytesIO(content), "the picture", preprocess)


def bundled(network: str) -> Target:
    """Return a bundled network, with the bundled test images."""
    images, _ = zoo.images()
    return Target(network, images.shape[1:], CLASSES, lambda number: images[number % len(images)])


def steps(image: Image, target: Target, attack: str, radius: str, budget: int = BUDGET) -> Iterator[Step]:
    """Attack a model on an image, with its prediction as the label, and yield every query."""
    made = ATTACKS[attack]()
    eps, loss = float(Fraction(radius)), made.own_loss(False)
    threat = Threat(eps, loss=loss, scores=target.scores, rounding=made.rounding)
    model = as_model(target.model)
    scores = scores_of(model, _as_batch(model, image))
    label = int(scores.argmax(axis=1)[0])
    channels, rows, columns = image.shape
    by_blocks = isinstance(made, Parsimonious) and channels == 3 and rows == columns <= _SHOWN
    low, high = threat.bounds(image)
    yield {
        "pictures": {name: _shown(each) for name, each in (("original", image), ("low", low), ("high", high))},
        "rows": len(_small(image)),
        "columns": _small(image).shape[1],
        "eps": 255 * threat.eps,
        "classes": list(target.classes),
        "label": label,
        "confidence": _confidence(scores, threat),
        "budget": budget,
    }
    recorder = _Recorder(model)
    # One image and one row per batch, so that each step of the engine is one query.
    engine = Engine(_RecordedAttack(made, recorder), recorder, threat, budget=budget, batch_size=1, in_flight=1)
    teller = _Blocks(recorder) if by_blocks else _Pictures(recorder)
    outcome: Outcome | None = None
    for event in engine.events([Task(0, image, label)]):
        if isinstance(event, Outcome):
            outcome = event
            continue
        yield {**_judged(event, recorder.scores[:1], threat, label), **teller.tell(ended=outcome is not None)}
    if outcome is not None:
        yield {"ended": outcome.ended, "queries": outcome.queries}


def _judged(event: EngineStep, scores: NDArray[Any], threat: Threat, label: int) -> Step:
    """Return what every step reports: the number of the query, the loss, the predicted class."""
    (loss,), _, (seen,) = threat.judge(scores, np.array([label]))
    confidence = _confidence(scores, threat)
    return {"query": event.counters.queries, "loss": float(loss), "seen": int(seen), "confidence": confidence}


def _confidence(scores: NDArray[Any], threat: Threat) -> float:
    confidence = threat.confidence(scores)
    assert confidence is not None, "no attack of the page works on a model that returns labels"
    return float(confidence[0])


def _as_batch(model: Model, image: Image) -> Any:
    return model.namespace.asarray(image[None], device=model.device)


class _Blocks:
    """Shows a search by its blocks: the set, the block that is tried, and the block that is kept."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder
        self._base: Mask | None = None

    def tell(self, *, ended: bool) -> Step:
        asked, current = self._recorder.last, self._recorder.current
        assert isinstance(asked, Corners), "Parsimonious asks for nothing else"
        assert isinstance(current, Corners), "Parsimonious asks for nothing else"
        step: Step = {
            "block": asked.grid.block,
            "flip": asked.flips[0] if asked.flips else None,
            "kept": None if ended else _kept(asked, current),
        }
        if asked.base is not self._base:
            self._base = asked.base
            step["base"] = _text(np.packbits(asked.base).tobytes())
        return step


class _Pictures:
    """Shows a search by the pictures that it queries."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def tell(self, *, ended: bool) -> Step:  # noqa: ARG002  (its kind of step is the same at the end)
        return {"frame": _shown(self._recorder.image)}


class _Recorder(Model):
    """A model that records the queries of a search, one row per call."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.namespace, self.device, self.fixed_batch = model.namespace, model.device, model.fixed_batch
        self.current: Corners | Images  # of the search's current request
        self.answered = 0  # rows of that request
        self.last: Corners | Images  # of the last query: for corners, a base with one flip or none
        self.image: Image
        self.scores: NDArray[Any]

    def __call__(self, images: Any) -> NDArray[Any]:
        self.scores = self._model(images)
        self.image = np.array(array_api_compat.to_device(images, "cpu")[0])
        self.last = self.current
        if isinstance(self.current, Corners):
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
        ask = next_ask(search, None)
        while ask is not None:
            self.recorder.current, self.recorder.answered = ask.points, 0
            reply = yield ask
            ask = next_ask(search, reply)


def _kept(last: Corners, current: Corners) -> int | None:
    """Return the block that the last reply changed in the working set, as the next request shows; None if none."""
    if current.grid is not last.grid:  # the search has moved to smaller blocks
        (flip,) = last.flips or (None,)
        changed = None if flip is None else last.grid.split(flipped(last.base, flip))
        return flip if changed is not None and np.array_equal(changed, current.base) else None
    blocks = np.flatnonzero(last.base != current.base)
    return int(blocks[0]) if len(blocks) == 1 else None


def _small(image: Image) -> NDArray[np.uint8]:
    """Return an image as 8-bit RGB pixels (rows, columns, 3); a large image keeps only some of them."""
    pixels = as_rgb(image)
    every = -(-max(pixels.shape[:2]) // _SHOWN)
    return np.ascontiguousarray(pixels[::every, ::every])


def _shown(image: Image) -> str:
    return _text(_small(image).tobytes())


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
