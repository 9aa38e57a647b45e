"""Part 2: the command with random arguments. It ends with a documented code, a sentence and no traceback."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

from fuzz import Draw
from fuzz.specs import DATA, MODEL, spec_bytes, write_data
from fuzz.values import LONG, TEXTS, attack_name, attack_text, mutated
from parsimon.cli import output
from parsimon.cli.commands import command
from parsimon.view.server import Viewer
from stored_runs import make

CODES = {0, 2, 3, 75, 130}  # as `parsimon --help` says

NAMES = (
    *("", ".", "..", "a", "no/such/folder", "file.txt", "finished", "interrupted", "folder", "pictures", "data.npz"),
    *("spec.toml", "/dev/full", "/dev/null", "/dev/full/x", "finished/run.sqlite", "-", "--", "~nobody/x", "a.png"),
    *("a\nb", "\x1b[31m", "\U0001f600", "\udcff.npz", "a:b", LONG, "x" * 300, "a.pdf", "a.html", "a.svg", "[red]x"),
)
WHOLE = ("1", "2", "5", "5", "40", "0", "-1", "9223372036854775807", "9223372036854775808", "all", *TEXTS)
# None that is found in a network or runs for long: every run here has an end.
MODELS = (
    *(MODEL,) * 8,
    *(f"fuzz.limited_models:{name}" for name in ("probabilities", "broken", "nothing", "no")),
    *("resnet-50", "a.b:c", "hf:", "timm:", "torchhub:", "robustbench:", "grpc://", "http://[::1", "ftp://x"),
    *("http://127.0.0.1:x/", "http://127.0.0.1:99999/v2/models/m"),
    *("grpc://127.0.0.1:1/m?patience=0.01&timeout=0.1", "http://127.0.0.1:1/v2/models/m?patience=0.01&timeout=0.1"),
    *NAMES,
)
SOURCES = (
    *(DATA,) * 8,
    *(
        "bundled",
        "folder:pictures",
        "folder:",
        "folder:folder",
        "named:pictures",
        "imagenet:pictures",
        "cifar10:folder",
    ),
    *("cifar10:folder:train", "hf:", "folder:no", "imagenet:pictures:file.txt", "x.npy"),
    *NAMES,
)
PREPROCESS = ("resize=4", "resize=4,crop=4", "crop=9999999", "resize=0", "resize=4x4x4", "interpolation=x", *TEXTS)
CHOICES = {
    "--format": ("latex", "markdown", "text"),
    "--loss": ("margin", "cross-entropy"),
    "--scores": ("logits", "probabilities"),
    "--targets": ("next", "random"),
    "--width": ("column", "page"),
}

OF_MODELS = {"--model": MODELS, "--data": SOURCES, "--preprocess": PREPROCESS, "--scores": TEXTS}
SHARED = {
    "--fail-under": ("0", "0.3", "1", "1.1", "-0", *TEXTS),
    "--format": TEXTS,
    "--in-flight": WHOLE,
    "--no-verify": (),
    "--ray": ("",),
    "--track": ("", "x", "x:y", *TEXTS),
    "--workers": ("0", "-1", "99999", "x"),
}
OF_RUNS = {
    **OF_MODELS,
    **SHARED,
    **dict.fromkeys(("--batch-size", "--budget", "--images", "--sample", "--seed"), WHOLE),
    "--eight-bit": (),
    "--eps": ("8/255", "0.1", *TEXTS),
    "--loss": TEXTS,
    "--out": NAMES,
    "--targets": TEXTS,
}
# The options of each command with values for them; those without values are flags.
GRAMMAR: dict[str, dict[str, tuple[str, ...]]] = {
    "run": {**OF_RUNS, "--attack": TEXTS},
    "compare": {**OF_RUNS, "--relative-to": ("nes", "square", *TEXTS)},
    "resume": SHARED,
    "show": {name: SHARED[name] for name in ("--format", "--fail-under")},
    "report": {"--out": NAMES},
    "plot": {"--out": NAMES, "--log": (), "--width": TEXTS},
    "check": {**OF_MODELS, "--batch-size": WHOLE},
    "view": {"--port": ("99999", "-1", "0", *TEXTS), "--no-open": ()},
    "completion": {},
    "zoo": {},
    "reproduce": {**OF_MODELS, "--budget": ("x", "0", *TEXTS), "--images": ("x", "0"), "--format": TEXTS},
    "": {"--version": (), "--help": ()},
}
WEIGHTS = {"run": 8, "compare": 4, "resume": 4, "show": 4, "report": 1, "check": 3, "plot": 0.3, "reproduce": 0.5}


class Ran(NamedTuple):
    """What a command has left."""

    code: object
    out: str
    said: str


def arguments(draw: Draw) -> list[str]:
    """Return a command line that is right, nearly right or absurd."""
    names = [*GRAMMAR]
    (name,) = draw.choices(names, [WEIGHTS.get(each, 0.5) for each in names])
    words = [name] if name else []
    words += _operands(draw, name)
    if name in ("run", "compare", "check") and "spec.toml" not in words:
        words += ["--model", MODEL, "--data", DATA]
        words += ["--budget", str(draw.randint(1, 5)), "--images", "2"] if name != "check" else []
    for option in draw.some([*GRAMMAR[name]], draw.choice((0, 1, 2, 4))):
        words += _option(draw, option, GRAMMAR[name][option])
    if draw.chance(0.3):
        words.append("--json")
    if draw.chance(0.1):
        words.insert(draw.randint(0, len(words)), draw.one("--help", "--no-such-option", "-x", "--", "", *TEXTS))
    if draw.chance(0.05) and words and ":" not in (word := draw.choice(words)):
        words[words.index(word)] = mutated(draw, word)
    return [word.replace("\0", "") for word in words]  # which no shell can pass


def _operands(draw: Draw, name: str) -> list[str]:
    """Return what a command is about; what it needs not may be missing."""
    text = draw.choice(TEXTS)
    match name:
        case "run":
            attack = attack_text(draw) if draw.chance(0.3) else attack_name(draw)
            return ["spec.toml"] if draw.chance(0.1) else ["--attack", attack]
        case "compare":
            return [attack_text(draw) if draw.chance(0.3) else attack_name(draw) for _ in range(draw.randint(1, 3))]
        case "resume" | "show":
            return [draw.choice(("finished", "interrupted", "interrupted", "damaged", draw.choice(NAMES)))]
        case "report" | "plot":
            return [draw.choice(("finished", "interrupted", draw.choice(NAMES))) for _ in range(draw.randint(0, 2))]
        case "view":
            return [draw.choice(NAMES)]
        case "zoo":
            return draw.choice(([], ["list"], ["show", "robust"], ["show", text], ["install", "robust"], ["x"]))
        case "reproduce":
            return draw.choice(([], [text], ["table1", "--images", "1", "--budget", "2", *LOCAL]))
        case "completion":
            return draw.choice((["bash"], ["zsh"], ["fish"], [text], []))
        case _:
            return []


LOCAL = ("--model", MODEL, "--data", DATA)


def _option(draw: Draw, option: str, values: tuple[str, ...]) -> list[str]:
    if not values:
        return [option]
    if option in CHOICES and draw.chance(0.7):
        values = CHOICES[option]
    value = draw.choice(values)
    if draw.chance(0.05):
        return [option]
    return [f"{option}={value}"] if draw.chance(0.1) else [option, value]


@contextmanager
def prepared() -> Iterator[Callable[[Draw], str]]:
    """Give what runs one command, in a working folder of its own."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        template = Path(name) / "template"
        template.mkdir()
        patch.chdir(template)
        patch.syspath_prepend(str(template))
        make_template(template)
        patch.setattr(Viewer, "serve_forever", lambda _: None)  # it ends with Ctrl-C only
        patch.setattr("webbrowser.open", lambda _: None)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("PARSIMON_HOME", str(template / "home"))
        folder = Path(name) / "place" / "work"  # a command may write beside it
        yield lambda draw: attempt(draw, template, folder)
    sys.modules.pop("sine_model", None)


def make_template(folder: Path) -> None:
    """Make what a user may have: runs, one of them damaged, data, pictures, a spec, other files and folders."""
    make(folder)
    write_data(folder / DATA)
    shutil.copytree(folder / "finished", folder / "damaged")
    content = bytearray((folder / "damaged" / "run.sqlite").read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    (folder / "damaged" / "run.sqlite").write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "file.txt").write_text("a.png 1\n")
    for place in ("pictures/0", "pictures/1", "pictures"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (200, 10, 30)).save(folder / place / "a_1.png")


def attempt(draw: Draw, template: Path, folder: Path) -> str:
    """Run a command in a copy of the template."""
    words = arguments(draw)
    draw.note(arguments=words)
    shutil.copytree(template, folder)
    described = spec_bytes(draw)
    if MODEL.encode() in described:  # else it may be the bundled network, for a minute
        (folder / "spec.toml").write_bytes(described)
    os.chdir(folder)
    try:
        # A few of them as a process, as a shell runs them: that takes a second each.
        ran = _started(words) if draw.chance(0.005) else _called(words)
        draw.note(code=ran.code, out=ran.out, said=ran.said)
        check(words, ran)
    finally:
        os.chdir(template)
        shutil.rmtree(folder.parent)
    return "error" if ran.code == 2 else f"exit code {ran.code}"


def check(words: list[str], ran: Ran) -> None:
    """Check the code, the sentence, and the document if one was asked for."""
    assert ran.code in CODES
    assert "Traceback" not in ran.said
    assert "Traceback" not in ran.out
    assert "\x1b" not in ran.said.replace("\x1b[31merror\x1b[0m", "")
    if ran.code == 2 and words[:1] != ["check"]:  # which prints what it finds
        assert ran.said.strip()
    asked = "--json" in words and not {"--", "--help", "-h", "--version"} & {*words}
    if asked and not words[words.index("--json") - 1].startswith("-"):
        assert isinstance(json.loads(ran.out), dict)


def _called(words: list[str]) -> Ran:
    """Run the command in this process, with streams that are as strict as a terminal's."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True)
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(said):
        patch.setattr(sys, "argv", ["parsimon", *words])
        patch.setattr(sys, "path", [*sys.path])  # to which the folder of a model is added
        code = output.run(command)
    return Ran(code, *(each.buffer.getvalue().decode() for each in (out, said)))


def _started(words: list[str]) -> Ran:
    """Run the command as a process."""
    paths = os.pathsep.join([str(Path(__file__).parent.parent), "."])
    done = subprocess.run(
        [sys.executable, "-m", "parsimon", *(os.fsencode(word.encode("utf-8", "replace")) for word in words)],
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "80"},
        capture_output=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace"))
