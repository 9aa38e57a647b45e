"""One flipped bit in the run file gives the true result or an error, and never another result."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from parsimon import runs
from parsimon.errors import ParsimonError
from stored_runs import described

FLIPS = 60


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("use", ["load", "resume"])
@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_a_flipped_bit_never_changes_a_result(made: Path, tmp_path: Path, name: str, use: str) -> None:
    truth = described(runs.load(made / ("finished" if use == "resume" else name)))
    draw = random.Random(4)
    size = (made / name / "run.sqlite").stat().st_size
    seen: dict[bool, int] = {True: 0, False: 0}
    for number in range(FLIPS):
        copy = tmp_path / str(number)
        shutil.copytree(made / name, copy)
        flip(copy / "run.sqlite", draw.randrange(8 * size))
        found = result_of(use, copy)
        assert found in (None, truth)
        seen[found is None] += 1
    assert min(seen.values()) > FLIPS // 10  # some flips are noticed, and some hit unused bytes


def result_of(use: str, folder: Path) -> dict[str, Any] | None:
    try:
        return described(runs.resume(folder) if use == "resume" else runs.load(folder))
    except ParsimonError:
        return None


@pytest.mark.parametrize("use", ["load", "resume"])
def test_without_a_flip_a_run_is_read_and_resumed(made: Path, tmp_path: Path, use: str) -> None:
    shutil.copytree(made / "interrupted", tmp_path / "copy")
    truth = runs.load(made / ("finished" if use == "resume" else "interrupted"))
    assert result_of(use, tmp_path / "copy") == described(truth)
    assert bool(truth.unfinished) == (use == "load")
