"""A few of the bundled images, and what the bundled network makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Bundled(NamedTuple):
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    correct: NDArray[np.bool_]  # whether the bundled network classifies them correctly: two of the ten it does not


def some_bundled_images() -> Bundled:
    import onnxruntime

    from parsimon import zoo

    images, labels = (array[:100] for array in zoo.images())
    session = onnxruntime.InferenceSession(str(zoo.path("robust")), providers=["CPUExecutionProvider"])
    scores = session.run(None, {session.get_inputs()[0].name: images})[0]
    right = np.argmax(scores, axis=1) == labels
    some = np.sort(np.concatenate([np.flatnonzero(right)[:8], np.flatnonzero(~right)[:2]]))
    return Bundled(images[some], labels[some], right[some])
