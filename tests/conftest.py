"""Settings for all tests, and fixtures that several folders share.

Heavy packages are imported by the fixtures that need them, so that the tests of set searches need none of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from bundled_images import Bundled, some_bundled_images

# Whatever a shell starts in the background ignores Ctrl-C, and so does all that it starts in turn; tests send Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Some virtual machines show AMX and refuse it, and torch fails there in half precision unless it is told not to try.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# How long an example takes says more about the machine than about the code.
settings.register_profile("parsimon", deadline=None)
settings.load_profile("parsimon")


@pytest.fixture(scope="session")
def bundled() -> Bundled:
    return some_bundled_images()


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """The working folder, with small stored runs, their data and their model."""
    from stored_runs import stored

    with stored() as folder:
        yield folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """It is no Python package, and so the one thing that may be missing; but not in CI."""
    from playwright.sync_api import sync_playwright

    from sample_report import chromium

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
    from parsimon.core import engine

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large":
            patch.setattr(engine, "_LARGE", 0)
        yield
