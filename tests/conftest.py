"""Settings for all tests, and the bundled images that several files share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from parsimon import zoo

# How long an example takes says more about the machine than about the code.
settings.register_profile("parsimon", deadline=None)
settings.load_profile("parsimon")


class Bundled(NamedTuple):
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    correct: NDArray[np.bool_]  # whether the bundled network classifies them correctly: two of the ten it does not


@pytest.fixture(scope="session")
def bundled() -> Bundled:
    images, labels = (array[:100] for array in zoo.images())
    session = onnxruntime.InferenceSession(str(zoo.path("robust")), providers=["CPUExecutionProvider"])
    scores = session.run(None, {session.get_inputs()[0].name: images})[0]
    right = np.argmax(scores, axis=1) == labels
    some = np.sort(np.concatenate([np.flatnonzero(right)[:8], np.flatnonzero(~right)[:2]]))
    return Bundled(images[some], labels[some], right[some])
