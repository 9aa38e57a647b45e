"""After Ctrl-C, finished images are kept and unfinished ones are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

Pixels = NDArray[np.float32]

# Radii at which some images are fooled at once, whatever the bundled weights, and at which some are not.
LARGE, SMALL = 128 / 255, 0.5 / 255


# A model that reports one of its calls by number, and answers that call only after a signal.
SLOW_MODEL = """
import atexit, os, select, signal, sys
import numpy as np

DATA = np.load("data.npz")
WAIT_AT = int(os.environ.get("WAIT_AT", "0"))
RECEIVED, SENT = os.pipe()
os.set_blocking(SENT, False)
signal.set_wakeup_fd(SENT)
calls = 0

def model(images):
    global calls
    calls += 1
    if calls == WAIT_AT:
        print("ready", file=sys.stderr, flush=True)
        assert select.select([RECEIVED], [], [], 60)[0]
    return images.reshape(len(images), -1) @ DATA["weights"]

def build():
    return model

atexit.register(lambda: print("calls", calls, file=sys.stderr))
"""

SCRIPT = """
import json, sys
import parsimon
from slow_model import DATA, model

result = parsimon.attack(
    model, DATA["images"], DATA["labels"], 0.03, budget=200, batch_size=4, in_flight=int(sys.argv[1]), seed=5
)
rows = [(each.index, each.ended, each.queries, each.predicted) for each in result.outcomes]
print(json.dumps({"rows": rows, "attacked": result.attacked.tolist(), "text": str(result)}))
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def whole_and_cut(folder: Path, *arguments: str) -> Iterator[Ran]:
    """Run Python twice: undisturbed, and with one SIGINT after half of the model calls."""
    random = np.random.default_rng(1)
    weights = random.normal(size=(192, 10)).astype(np.float32)
    images = random.random((12, 3, 8, 8), dtype=np.float32)
    labels = (images.reshape(12, -1) @ weights).argmax(axis=1)
    labels[5] = (labels[5] + 1) % 10  # a misclassified image
    np.savez(folder / "data.npz", images=images, labels=labels, weights=weights)
    (folder / "slow_model.py").write_text(SLOW_MODEL)
    whole = run_slowly(folder, 0, *arguments)
    yield whole
    yield run_slowly(folder, int(whole.err.split()[-1]) // 2, *arguments)


def run_slowly(folder: Path, wait_at: int, *arguments: str) -> Ran:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "WAIT_AT": str(wait_at)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if wait_at:
            assert process.stderr is not None
            assert process.stderr.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    return Ran(process.returncode, out, err)


@pytest.mark.parametrize("in_flight", [1, 3, 256])
def test_ctrl_c_keeps_finished_images_and_names_the_others(tmp_path: Path, in_flight: int) -> None:
    runs = list(whole_and_cut(tmp_path, "-c", SCRIPT, str(in_flight)))
    assert [run.code for run in runs] == [0, 0]
    whole, cut = (json.loads(run.out) for run in runs)
    assert cut["attacked"] == whole["attacked"] == [index != 5 for index in range(12)]
    unfinished = 0
    for mine, undisturbed in zip(cut["rows"], whole["rows"], strict=True):
        if mine[1] == "interrupted":
            unfinished += 1
            index, _, queries, predicted = mine
            assert index == undisturbed[0]
            assert queries <= undisturbed[2]
            assert predicted is None
        else:
            assert mine == undisturbed
    assert 0 < unfinished < len(whole["rows"])
    assert f"Unfinished images, counted as not fooled so far: Thrift {unfinished}." in cut["text"]
    assert ">=" in cut["text"]
    assert "Unfinished" not in whole["text"]


def test_ctrl_c_in_the_command_writes_finished_images_and_exits_with_130(tmp_path: Path) -> None:
    tables = []
    data = ["--model", "slow_model:build", "--data", "data.npz"]
    options = ["--eps", "0.03", "--budget", "200", "--batch-size", "4", "--out"]
    for number, run in enumerate(whole_and_cut(tmp_path, "-m", "parsimon", "run", *data, *options, "out")):
        assert run.code == (0, 130)[number]
        assert ("Unfinished" in run.out) == bool(number)
        assert "Traceback" not in run.err
        tables.append((tmp_path / "out" / "results.csv").read_text().splitlines())
        (tmp_path / "out").rename(tmp_path / f"out{number}")
    # An interrupted run is not verified, which the eighth column from the end says.
    whole, cut = ([row.rsplit(",", 8)[0] for row in table] for table in tables)
    finished = [row for row in cut[1:] if "interrupted" not in row]
    assert 0 < len(finished) < len(cut) - 1 == len(whole) - 1 == 11
    assert set(finished) < set(whole)
    assert [row.split(",")[0] for row in cut] == [row.split(",")[0] for row in whole]


TWICE = """
import os, signal
import numpy as np
import parsimon

calls = 0

def model(images):
    global calls
    calls += 1
    if calls > 2:  # the checks are over
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    return np.tile(np.array([3.0, 0.0]), (len(images), 1))

try:
    parsimon.attack(model, np.full((2, 3, 8, 8), 0.5, np.float32), [0, 0], 0.1)
except KeyboardInterrupt:
    print(signal.getsignal(signal.SIGINT) is before)
"""


def test_a_second_ctrl_c_stops_at_once_and_leaves_pythons_own_handler() -> None:
    code = "import signal; before = signal.default_int_handler; signal.signal(signal.SIGINT, before)\n" + TWICE
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"
