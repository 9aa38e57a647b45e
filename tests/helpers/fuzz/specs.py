"""Part 3: files that describe a run, with anything in them."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz import Draw, sentence_of
from fuzz.folders import BYTES
from fuzz.limited_models import build
from fuzz.values import attack_text, mutated
from parsimon import ParsimonError, runs
from parsimon.runs.config import RunConfig

MODEL, DATA = "fuzz.limited_models:build", "data.npz"
NAMES = list(RunConfig.__struct_fields__)
# Values as TOML writes them, right and wrong.
VALUES = (
    *("0", "1", "3", "-1", "+3", "1_0", "0x10", "0b11", "1e3", "1.5", "nan", "inf", "-inf", "true", "false", '""'),
    *("9223372036854775807", "9223372036854775808", "9" * 4000, "9" * 5000, "1e400", '"all"', '"next"', '"margin"'),
    *("[]", "[3]", '["nes"]', '["nes", "square", "nes"]', '["square,share=0.3"]', "[[[]]]", "{}", "{a = 1}", "'''x'''"),
    *("[" * 2000 + "]" * 2000, "{a = " * 500 + "1" + "}" * 500, '"' + "x" * 100_000 + '"', '"\\u0000"', '"\\ud800"'),
    *("2026-01-01", "2026-99-99", "07:32:00", '"probabilities"', '"8/255"', '"1/0"', '"1e99999999"', '"0.05"', '"nan"'),
    *("'\U0001f600'", '"\\U0001F600"', "", "'", '"', "=", "#", "null", "None", '"../../x"', '"bundled"'),
)


@contextmanager
def prepared() -> Iterator[Callable[[Draw], str]]:
    """Give what tries one file, in a working folder with data."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.chdir(folder)
        write_data(folder / DATA)
        yield lambda draw: attempt(draw, folder)


def write_data(path: Path) -> None:
    """Write a few images with their labels, for the models of `limited_models`."""
    images = np.random.default_rng(1).random((5, 3, 4, 4), dtype=np.float32)
    np.savez(path, images=images, labels=build()(images).argmax(axis=1))


def spec_text(draw: Draw) -> str:
    """Return a file that is right, or nearly."""
    good: dict[str, Any] = {"model": f'"{MODEL}"', "data": f'"{DATA}"', "budget": draw.randint(1, 9), "images": 2}
    attack = attack_text(draw).encode("utf-8", "replace").decode()
    good["attacks"] = f"[{_written(attack)}]" if draw.chance(0.3) else '["square"]'
    for name in draw.some(NAMES, 3):
        good[name] = draw.choice(VALUES)
    lines = [f"{name} = {value}" for name, value in good.items()]
    if draw.chance(0.1):
        lines.insert(draw.randrange(len(lines)), draw.one("[model]", "[[attacks]]", "budget = 3", "x.y.z = 1", "\x00"))
    draw.shuffle(lines)
    return "\n".join(lines) + "\n"


def _written(text: str) -> str:
    """Return a text as TOML writes it."""
    return '"' + "".join(f"\\U{ord(each):08x}" if not each.isalnum() else each for each in text) + '"'


def spec_bytes(draw: Draw) -> bytes:
    """Return a file, mutated as text or as bytes, or as it is."""
    text = spec_text(draw)
    if draw.chance(0.3):
        text = mutated(draw, text)
    content = text.encode("utf-8", "surrogatepass")
    return BYTES[draw.choice([*BYTES])](draw, content) if draw.chance(0.3) else content


def attempt(draw: Draw, folder: Path) -> str:
    """Read a file; a spec says what is in it, is the same when it is written and read again, and can be run."""
    path = folder / "spec.toml"
    path.write_bytes(spec_bytes(draw))
    draw.note(file=path.read_bytes())
    try:
        spec = RunConfig.read(path)
    except ParsimonError as error:
        sentence_of(error)
        return "error"
    said = tomllib.loads(path.read_bytes().decode())
    expected = {**RunConfig().settings(), **{name: value for name, value in said.items() if name != "execution"}}
    assert {name: list(value) if isinstance(value, tuple) else value for name, value in spec.settings().items()} == {
        name: list(value) if isinstance(value, tuple) else value for name, value in expected.items()
    }
    path.write_text(spec.toml(), "utf-8", newline="")
    assert RunConfig.read(path).settings() == spec.settings()
    assert RunConfig.read(path).hash == spec.hash
    return _run(draw, spec, folder) if spec.model == MODEL else "result"


def _run(draw: Draw, spec: RunConfig, folder: Path) -> str:
    """Run a spec; what is read back is what came out."""
    out = folder / f"out-{draw.random()}"
    try:
        outcomes = {name: each.outcomes for name, each in runs.run(spec, out, progress=False).results.items()}
    except ParsimonError as error:
        sentence_of(error)
        return "error when it is run"
    assert {name: each.outcomes for name, each in runs.load(out).results.items()} == outcomes
    return "run"
