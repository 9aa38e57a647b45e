"""A damaged file in a run's folder leads to an error that says what is damaged, never to a traceback."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from parsimon import runs
from parsimon.cli import output
from parsimon.cli.commands import command
from parsimon.errors import InputError, ParsimonError, StoreError
from parsimon.report.content import facts_shown
from parsimon.runs.config import RunConfig
from parsimon.runs.runfile import is_written
from parsimon.runs.store import Store
from parsimon.view.watch import Watch
from stored_runs import OLD


@pytest.fixture
def copies(made: Path, tmp_path: Path) -> Path:
    """Return a folder with runs of this format, and in `old` runs of format 3, which has no checksums."""
    for name in ("finished", "interrupted"):
        shutil.copytree(made / name, tmp_path / name)
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path


def change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / "run.sqlite")) as database, database:
        database.execute(statement, values)


def refused(folder: Path, kind: type[ParsimonError] = StoreError) -> str:
    """Check that a run can be neither read nor resumed, and return the error."""
    with pytest.raises(kind) as read:
        runs.load(folder)
    with pytest.raises(kind):
        runs.resume(folder)
    return str(read.value)


# --- rows with checksums ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (
            "UPDATE outcomes SET queries = queries + 1 WHERE attack = 'Square' AND image = 2",
            "the outcome of Square on image 2",
        ),
        (
            "UPDATE outcomes SET out_of_range = 1 WHERE attack = 'Square' AND image = 3",
            "the outcome of Square on image 3",
        ),
        ("UPDATE outcomes SET image = 99 WHERE attack = 'Square' AND image = 4", "the outcome of Square on image 99"),
        (
            "UPDATE outcomes SET confidence = 0.5 WHERE attack = 'Square' AND image = 5",
            "the outcome of Square on image 5",
        ),
        ("UPDATE journal SET told = zeroblob(LENGTH(told)) WHERE call = 20", "journal entry 20 of Bandits"),
        ("UPDATE journal SET attack = 'Square' WHERE call = 21", "journal entry 21 of Square"),
        ("UPDATE about SET value = '[0]' WHERE key = 'chosen'", "the fact 'chosen'"),
        ("UPDATE about SET key = 'fingerprins' WHERE key = 'fingerprint'", "the fact 'fingerprins'"),
    ],
)
def test_a_changed_row_is_named(copies: Path, statement: str, what: str) -> None:
    folder = copies / "interrupted"
    change(folder, statement)
    sentence = refused(folder)
    assert f"run.sqlite is damaged: {what} (its checksum is wrong)" in sentence
    outcomes = statement.startswith("UPDATE outcomes")
    assert f"{10 if outcomes else 11} of 11 stored outcomes are intact." in sentence
    assert "Start a new run: parsimon run" in sentence


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM outcomes WHERE attack = 'Square' AND image = 2", "10 of 11 outcomes are there"),
        ("DELETE FROM outcomes", "0 of 11 outcomes are there"),
        ("DELETE FROM journal WHERE call = 20", "journal entries of Bandits are there"),
        ("DELETE FROM about WHERE key = 'spec'", "facts of the run are missing"),
        ("DELETE FROM about WHERE key = 'progress Bandits'", "facts of the run are missing"),
    ],
)
def test_a_lost_row_is_noticed(copies: Path, statement: str, sentence: str) -> None:
    change(copies / "interrupted", statement)
    with pytest.raises(StoreError, match=f"is damaged: .*{sentence}"):
        runs.load(copies / "interrupted")
    with pytest.raises(StoreError, match=r"is damaged: .*( are there|are missing)\."):
        runs.resume(copies / "interrupted")


def test_the_error_says_what_can_still_be_used(copies: Path) -> None:
    folder = copies / "finished"
    (folder / "results.csv").write_text("attack,image\n")
    change(folder, "UPDATE outcomes SET success = 1 - success WHERE image < 3")
    sentence = refused(folder)
    assert "10 of 16 stored outcomes are intact." in sentence
    assert "results.csv beside it can still be used" in sentence


def test_a_damaged_run_is_not_kept_locked(copies: Path) -> None:
    change(copies / "finished", "UPDATE outcomes SET success = 1 - success")
    with pytest.raises(StoreError) as raised:
        runs.resume(copies / "finished")
    assert raised.value.__traceback__ is not None
    assert not is_written(copies / "finished")


# --- rows without checksums -------------------------------------------------------------------------------------------

VALUES = (
    "{",
    "[]",
    "{}",
    '"x"',
    "null",
    "-1",
    "[1, null]",
    "[1e999]",
    "9" * 5000,
    "[" * 100_000,
    "[99999999999999999999]",
)
KEYS = ("chosen", "classes", "confidence", "fingerprint", "labels", "predicted", "queries Square", "spec")


@pytest.mark.parametrize("key", KEYS)
def test_a_fact_of_any_content_is_refused(copies: Path, key: str) -> None:
    for number, value in enumerate(VALUES):
        folder = copies / f"{number}"
        shutil.copytree(OLD / "interrupted", folder)
        change(folder, "UPDATE about SET value = ? WHERE key = ?", value, key)
        with pytest.raises(ParsimonError) as raised:
            runs.load(folder)
        assert len(str(raised.value)) < 1500


@pytest.mark.parametrize(
    "change_to",
    [
        "told = x''",
        "told = SUBSTR(told, 1, 31)",
        "told = SUBSTR(told, 1, LENGTH(told) - 1)",
        "told = CAST(told || x'00' AS BLOB)",
        "told = CAST(x'ffffffffffffffff' || SUBSTR(told, 9) AS BLOB)",
        "told = CAST(x'ffffffffffffff7f' || SUBSTR(told, 9) AS BLOB)",
        "told = CAST(SUBSTR(told, 1, 40) || x'ffffffffffffffff' || SUBSTR(told, 49) AS BLOB)",
        "told = CAST(SUBSTR(told, 1, 64) || x'0000000000000070' || SUBSTR(told, 73) AS BLOB)",
        "told = 'text'",
        "told = 7",
    ],
)
def test_a_journal_entry_of_any_content_is_refused(copies: Path, change_to: str) -> None:
    folder = copies / "old" / "interrupted"
    change(folder, f"UPDATE journal SET {change_to} WHERE call = 30")
    assert "journal entry 30 of Bandits" in refused(folder)


@pytest.mark.parametrize(
    "change_to",
    [
        *("grid = 'x'", "grid = '4 4'", "grid = '4 4 3'", "grid = '0 0 0'", "grid = '-4 -4 -1'", "grid = '8 8 1'"),
        *("grid = 7", "point = x'00'", "point = x''", "point = 'text'", "queries = -1"),
        *("ended = 'nowhere'", "queries = 'many'", "predicted = 'cat'", "confidence = 'sure'", "image = -1"),
        *("image = 1000", "image = 'first'", "attack = 'nobody'", "success = 'yes'"),
    ],
)
def test_an_outcome_of_any_content_is_refused(copies: Path, change_to: str) -> None:
    folder = copies / "old" / "finished"
    change(folder, f"UPDATE outcomes SET {change_to} WHERE attack = 'Square' AND image = 2")
    with pytest.raises(StoreError, match="is damaged: "):
        runs.load(folder)
    with suppress(
        ParsimonError
    ):  # damage in rows that a resumed run does not read, such as those of an unknown attack, is allowed
        runs.resume(folder)


def test_a_missing_table_is_refused(copies: Path) -> None:
    for table in ("about", "outcomes", "journal"):
        folder = copies / table
        shutil.copytree(copies / "finished", folder)
        change(folder, f"DROP TABLE {table}")
        assert f"no such table: {table}" in refused(folder)


# --- other files ------------------------------------------------------------------------------------------------------


def spoilt(path: Path, content: bytes | None) -> None:
    """Replace a file by other content, or by a folder if that is None."""
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("content", [b"not a database" * 100, None])
def test_a_damaged_lock_is_refused(copies: Path, content: bytes | None) -> None:
    folder = copies / "finished"
    spoilt(folder / "lock.sqlite", content)
    assert not is_written(folder)
    with pytest.raises(StoreError, match=r"lock\.sqlite (is damaged .*: delete it|cannot be opened)") as raised:
        runs.resume(folder)
    assert "another process" not in str(raised.value)
    assert runs.load(folder).unfinished == 0


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe\0", b"[1, 2]", b'"text"', b"7", b"[" * 100_000, b"9" * 5000, b'{"packages": 3}', None]
)
def test_nothing_depends_on_the_environment(copies: Path, content: bytes | None) -> None:
    spoilt(copies / "finished" / "environment.json", content)
    facts = facts_shown(runs.facts_of(copies / "finished"))
    assert facts[0]["title"] == "Spec"
    assert runs.load(copies / "finished").unfinished == 0
    assert runs.identity(copies / "finished")


TOML = {
    "garbage": b"\x7fELF garbage",
    "not UTF-8": b'model = "\xff\xfe"',
    "cut": b'attacks = ["square", "ban',
    "many digits": b"budget = " + b"9" * 5000,
    "a large number": b"budget = " + b"9" * 4000,
    "nested": b"attacks = " + b"[" * 100_000 + b"]" * 100_000,
    "a wrong type": b"attacks = 7",
    "a table": b"[model]\nname = 7",
    "a long text": b'budget = "' + b"9" * 100_000 + b'"',
    "a long name": b"x" * 100_000 + b" = 7",
    "NUL in data": b'data = "a\\u0000b.npz"',
    "NUL in attacks": b'attacks = ["a\\u0000b"]',
    "an endless radius": b'eps = "1e99999999"',
    "a long radius": b'eps = "' + b"1" * 100_000 + b'"',
    "a date": b"budget = 2026-99-99",
    "bytes of zero": b"\0" * 1000,
    "a folder": None,
}


@pytest.mark.parametrize("content", TOML.values(), ids=TOML)
def test_a_spec_of_any_content_is_refused(copies: Path, content: bytes | None) -> None:
    path = copies / "finished" / "spec.toml"
    spoilt(path, content)
    sentence = refused(copies / "finished", InputError)
    assert str(path) in sentence
    assert len(sentence) < len(str(path)) + 600


def test_differences_between_specs_are_short() -> None:
    (line,) = RunConfig(model="x" * 10_000).differences(RunConfig(model="y" * 10_000))
    assert len(line) < 450


# --- changed data -----------------------------------------------------------------------------------------------------


def test_a_run_whose_data_have_changed_is_neither_read_nor_resumed(
    copies: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(copies)
    monkeypatch.syspath_prepend(copies)
    shutil.copy(OLD / "data.npz", copies)
    assert runs.load(copies / "finished").unfinished == 0
    with np.load(OLD / "data.npz") as arrays:
        images, labels = arrays["images"], arrays["labels"]
    images[7, 0, 0, 0] = np.nextafter(images[7, 0, 0, 0], np.float32(1))  # one bit of one pixel
    np.savez(copies / "data.npz", images=images, labels=labels)

    sentence = "the data 'data.npz' have changed since the run was begun"
    assert sentence in refused(copies / "finished", InputError)
    with pytest.raises(InputError, match=sentence):
        Watch(copies / "finished").state(0)
    for name in ("show", "report", "plot"):
        monkeypatch.setattr(sys, "argv", ["parsimon", name, "finished"])
        assert output.run(command) == output.Exit.BAD_INPUT
        assert sentence in " ".join(capsys.readouterr().err.split())


# --- why a file cannot be used ----------------------------------------------------------------------------------------


def failing(code: int, message: str) -> Callable[..., sqlite3.Connection]:
    """Return a `connect` that fails in ways that are hard to provoke as root."""

    def connect(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError(message)
        error.sqlite_errorcode = code
        raise error

    return connect


@pytest.mark.parametrize(
    ("code", "message", "sentence"),
    [
        (sqlite3.SQLITE_BUSY, "database is locked", "another process is working on the run"),
        (sqlite3.SQLITE_FULL, "database or disk is full", "make room on the disk"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error", "make room on the disk"),
        (sqlite3.SQLITE_CANTOPEN, "unable to open database file", "may be read and written"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "attempt to write a readonly database", "may be read and written"),
        (sqlite3.SQLITE_NOTADB, "file is not a database", "delete it, then try again"),
    ],
)
def test_a_lock_that_cannot_be_taken_has_its_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str, sentence: str
) -> None:
    (tmp_path / "lock.sqlite").touch()
    monkeypatch.setattr(sqlite3, "connect", failing(code, message))
    with pytest.raises(StoreError, match=re.escape(sentence)):
        Store(tmp_path, (), write=True)
    assert is_written(tmp_path) == (code == sqlite3.SQLITE_BUSY)


def test_a_folder_that_does_not_exist_is_not_called_locked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened or written") as raised:
        Store(tmp_path / "nowhere", (), write=True)
    assert "another process" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []
