"""Settings for all tests, and the bundled images that several files share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
from hypothesis import settings
from numpy.typing import NDArray
from playwright.sync_api import sync_playwright

from page import chromium
from parsimon import zoo
from parsimon.core import engine

# Whatever a shell starts in the background ignores Ctrl-C, and so does all that it starts in turn; tests send Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Some virtual machines show AMX and refuse it, and torch fails there in half precision unless it is told not to try.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

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


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """It is no Python package, and so the one thing that may be missing; but not in CI."""
    path = chromium()
    if path is None:
        do_without = pytest.fail if os.environ.get("CI") else pytest.skip
        do_without("there is no Chromium here; on Debian: apt-get install chromium")
    with sync_playwright() as started:
        launched = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module", params=["small", "large"])
def either_canvas(request: pytest.FixtureRequest) -> Iterator[None]:
    """Images are drawn as small ones are, and then in place, as large ones."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large":
            patch.setattr(engine, "_LARGE", 0)
        yield
