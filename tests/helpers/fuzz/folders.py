"""Part 4: damaged run folders, which give exactly the true result or a sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz import Draw, sentence_of
from fuzz.values import LONG, mutated
from parsimon import ParsimonError, runs
from stored_runs import OLD, described, stored

RUNS = ("finished", "interrupted")
# The run file twice as often: it is the one that matters. The last two do not exist after a run has ended.
FILES = (
    "run.sqlite",
    "run.sqlite",
    "spec.toml",
    "environment.json",
    "lock.sqlite",
    "run.sqlite-wal",
    "run.sqlite-journal",
)


@contextmanager
def prepared() -> Iterator[Callable[[Draw], str]]:
    """Give what tries one damaged folder."""
    with stored() as folder:
        truth = {name: described(runs.load(folder / name)) for name in RUNS}
        yield lambda draw: attempt(draw, folder, truth)


def attempt(draw: Draw, folder: Path, truth: dict[str, Any]) -> str:
    """Damage a copy of a run, and read or resume it."""
    name, use, old = draw.choice(RUNS), draw.one("load", "resume"), draw.chance(0.15)
    copy = folder / "copy"
    shutil.copytree((OLD if old else folder) / name, copy)
    draw.note(run=name, use=use, format_of_version_0_2=old)
    try:
        changed = {damage(draw, copy, folder) for _ in range(draw.choice((1, 1, 1, 2, 3)))}
        found = described(runs.resume(copy, progress=False) if use == "resume" else runs.load(copy))
    except ParsimonError as error:
        sentence_of(error)
        return "error"
    finally:
        shutil.rmtree(copy)
    if old or {"run.sqlite", "spec.toml"} <= changed:
        return "result"  # of another spec, if the run is gone; and format 3 has no checksums
    allowed = [truth["finished"]] if use == "resume" else [*truth.values()]  # a file may be that of the other run
    assert found in allowed, "another result than the true one"
    return "result"


def damage(draw: Draw, copy: Path, folder: Path) -> str:
    """Damage one file of a run; return its name."""
    name = draw.choice(FILES)
    path = copy / name
    how = draw.choice([*BYTES, "delete", "folder", "swap", "text"])
    draw.note(damaged=(name, how))
    if path.is_dir():
        return name
    content = path.read_bytes() if path.exists() else b""
    if how in ("delete", "folder"):
        path.unlink(missing_ok=True)
        if how == "folder":
            path.mkdir()
    elif how == "swap":
        other = folder / draw.choice(RUNS) / draw.choice((name, name, name, "spec.toml", "lock.sqlite"))
        if other.exists():
            shutil.copy(other, path)
    elif how == "text":
        path.write_text(mutated(draw, content.decode("utf-8", "surrogateescape")), "utf-8", "replace")
    else:
        path.write_bytes(BYTES[how](draw, content))
    return name


def _flipped(draw: Draw, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 20)) if changed else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _moved(draw: Draw, content: bytes) -> bytes:
    """Swap two pieces, as a device that writes in the wrong order does."""
    size = draw.choice((1, 8, 512, 4096))
    first, second = sorted(draw.randrange(max(1, len(content) - size)) // size * size for _ in range(2))
    pieces = content[first : first + size], content[second : second + size]
    if second - first < size:
        return content
    return content[:first] + pieces[1] + content[first + size : second] + pieces[0] + content[second + size :]


def _overwritten(draw: Draw, content: bytes) -> bytes:
    start, size = draw.randrange(max(1, len(content))), draw.choice((1, 2, 4, 16, 512, 4096))
    filling = draw.one(b"\0", b"\xff", None)
    piece = draw.randbytes(size) if filling is None else filling * size
    return content[:start] + piece + content[start + size :]


BYTES: dict[str, Callable[[Draw, bytes], bytes]] = {
    "flip": _flipped,
    "flip again": _flipped,
    "truncate": lambda draw, content: content[: draw.randrange(max(1, len(content)))],
    "empty": lambda _, __: b"",
    "overwrite": _overwritten,
    "overwrite again": _overwritten,
    "move": _moved,
    "cut out": lambda draw, content: content[: (at := draw.randrange(max(1, len(content))))] + content[at + 1 :],
    "insert": lambda draw, content: content[: (at := draw.randrange(max(1, len(content))))] + b"\0" + content[at:],
    "append": lambda draw, content: content + draw.randbytes(draw.choice((1, 100, 5000))),
    "double": lambda _, content: content + content,
    "random": lambda draw, _: draw.randbytes(draw.choice((1, 100, 5000))),
    "long": lambda _, __: LONG.encode() * 20,
}
