"""The run file as SQLite sees it: opening, locking, format, checksums, and what its errors mean.

Format 4 stores a checksum with every row, over all other columns of it. Format 3, of version 0.2, has none: it is read
from an upgraded copy in memory, and upgraded in place when it is opened for writing. Its facts `queries ATTACK` become
`progress ATTACK`, which also counts the attack's rows, so that a lost row is noticed.

While a process writes, the file is in WAL mode, so that others can read it meanwhile. It leaves that mode when it
closes the file, so that a run can be read from a medium that cannot be written.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from parsimon.errors import StoreError, shorten
from parsimon.runs.packing import pack_entries, unpack_entries

VERSION = 4
NUMBER_OF_FACTS = "facts"  # itself a fact, and not counted
ADD_FACT = "INSERT INTO about VALUES (?, ?, ?)"
CHANGE_FACT = "UPDATE about SET value = ?, checksum = ? WHERE key = ?"
COLUMNS = (
    *("attack", "image", "success", "queries", "ended", "uncharged", "outside", "gradients", "predicted"),
    *("grid", "point", "confidence", "out_of_range"),
)
OUTCOMES = ", ".join(COLUMNS)

_UPGRADABLE = 3
_APPLICATION = 0x70617273  # "pars"
_LOCK, _MOMENT = "lock.sqlite", 0.5  # seconds
_TRIES = 50  # to leave WAL mode while others read

# An upgraded file has the new columns at the end, and so has a new one.
_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB) WITHOUT ROWID;
CREATE TABLE outcomes (
    attack TEXT NOT NULL, image INTEGER NOT NULL, success INTEGER NOT NULL, queries INTEGER NOT NULL,
    ended TEXT NOT NULL, uncharged INTEGER NOT NULL, outside INTEGER NOT NULL, gradients INTEGER NOT NULL,
    predicted INTEGER, grid TEXT, point BLOB, confidence REAL, out_of_range INTEGER NOT NULL DEFAULT 0, checksum BLOB,
    PRIMARY KEY (attack, image)
);
CREATE TABLE journal (call INTEGER PRIMARY KEY, attack TEXT NOT NULL, told BLOB NOT NULL, checksum BLOB);
"""
_NEW_COLUMNS = """
ALTER TABLE about ADD COLUMN checksum BLOB;
ALTER TABLE outcomes ADD COLUMN out_of_range INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outcomes ADD COLUMN checksum BLOB;
ALTER TABLE journal ADD COLUMN checksum BLOB;
"""


def checksum(values: tuple[Any, ...]) -> bytes:
    """Return 64 bits that change with any value of a row, its type or its place."""
    blobs = [value for value in values if isinstance(value, bytes)]
    rest = [("blob", len(value)) if isinstance(value, bytes) else value for value in values]
    digest = blake2b(repr(rest).encode(), digest_size=8)
    for blob in blobs:
        digest.update(blob)
    return digest.digest()


def fact_row(key: str, value: Any) -> tuple[str, str, bytes]:
    """Return a row of `about`."""
    row = key, json.dumps(value)
    return *row, checksum(row)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(database: sqlite3.Connection) -> Iterator[None]:
    """Read several things of one moment."""
    database.execute("BEGIN")
    try:
        yield
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


# --- opening ----------------------------------------------------------------------------------------------------------


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open the file, or create it. Nothing is written to a file that is damaged or of another format."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        if _is_empty(database):
            _create(database)
        version = _version(database, path)
        check_pages(database)
        if version == _UPGRADABLE:
            _upgrade(database)
    except BaseException:
        database.close()
        raise
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the file without changing anything in its folder, if it was closed; a copy of it if it is of format 3."""
    database = _readable(path)
    try:
        if _version(database, path) == VERSION:
            return database
        copy = sqlite3.connect(":memory:", isolation_level=None)
        database.backup(copy)
    except BaseException:
        database.close()
        raise
    database.close()
    _upgrade(copy)
    return copy


def _readable(path: Path) -> sqlite3.Connection:
    """Open a file that may lie on a medium that cannot be written.

    SQLite must write in order to read what a killed writer has left, and any file in WAL mode. If it cannot, a file in
    WAL mode is complete nevertheless if there is nothing beside it.
    """
    try:
        return _connected(path, "mode=rw")
    except sqlite3.OperationalError as error:
        beside = [path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-journal")]
        complete = not any(each.exists() and each.stat().st_size for each in beside)
        if not complete or code_of(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    return _connected(path, "immutable=1")


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", isolation_level=None, uri=True)
    try:
        database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except BaseException:
        database.close()
        raise
    return database


def begin_writing(database: sqlite3.Connection) -> None:
    """Let others read while this process writes, and do not wait for the disk."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")


def close_after_writing(database: sqlite3.Connection) -> None:
    """Close the file, in the mode in which it can be read from anywhere, unless others read it all the time."""
    with closing(database):
        for _ in range(_TRIES):
            try:
                database.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.Error as error:
                if code_of(error) != sqlite3.SQLITE_BUSY:  # such as a full disk: all is saved, and stays in WAL mode
                    return
                time.sleep(_MOMENT / _TRIES)
            else:
                return


def check_pages(database: sqlite3.Connection) -> None:
    """Raise an error if the structure of the file is damaged, so that rows may be lost."""
    ((said,),) = database.execute("PRAGMA quick_check(1)").fetchall()
    if said != "ok":
        raise sqlite3.DatabaseError(" ".join(said.split()))


# --- format -----------------------------------------------------------------------------------------------------------


def _is_empty(database: sqlite3.Connection) -> bool:
    """Return whether nothing was ever written: the file is new, or the process that made it was killed before."""
    (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    return not tables and not application


def _create(database: sqlite3.Connection) -> None:
    database.executescript(
        f"BEGIN; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {VERSION}; {_SCHEMA} COMMIT;"
    )


def _version(database: sqlite3.Connection, path: Path) -> int:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    version: int
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise StoreError(f"{path} is a database, but not of a run")
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a later parsimon (format {version}; this one knows {VERSION}): update it"
        )
    if version < _UPGRADABLE:
        raise StoreError(
            f"{path} was written by an earlier parsimon (format {version}; this one knows {_UPGRADABLE} and {VERSION}) "
            "and is left as it is: its results.csv and its tables can still be read. To continue it, use the version "
            f"in its environment.json; to have it anew: parsimon run {path.parent / 'spec.toml'} --out ANOTHER"
        )
    return version


def _upgrade(database: sqlite3.Connection) -> None:
    """Make format 4 of format 3, all or nothing."""
    with transaction(database):
        for statement in filter(str.strip, _NEW_COLUMNS.split(";")):
            database.execute(statement)
        try:
            _upgrade_facts(database)
            for (call,) in database.execute("SELECT call FROM journal").fetchall():
                _upgrade_entry(database, call)
        except (TypeError, ValueError, RecursionError) as error:
            raise sqlite3.DatabaseError(str(error)) from error
        for number, *row in database.execute(f"SELECT rowid, {OUTCOMES} FROM outcomes").fetchall():
            database.execute("UPDATE outcomes SET checksum = ? WHERE rowid = ?", (checksum(tuple(row)), number))
        database.execute(f"PRAGMA user_version = {VERSION}")


def _upgrade_facts(database: sqlite3.Connection) -> None:
    facts = dict(database.execute("SELECT key, value FROM about"))
    attacks = {key.removeprefix("queries ") for key in facts if key.startswith("queries ")}
    counts = {
        table: dict(database.execute(f"SELECT attack, COUNT(*) FROM {table} GROUP BY attack"))
        for table in ("outcomes", "journal")
    }
    attacks |= set(counts["outcomes"]) | set(counts["journal"])
    for attack in attacks:
        queries = json.loads(facts.pop(f"queries {attack}", "0"))
        progress = [queries, counts["outcomes"].get(attack, 0), counts["journal"].get(attack, 0)]
        facts[f"progress {attack}"] = json.dumps(progress)
    facts[NUMBER_OF_FACTS] = json.dumps(len(facts))
    database.execute("DELETE FROM about")
    database.executemany(ADD_FACT, [(*row, checksum(row)) for row in facts.items()])


def _upgrade_entry(database: sqlite3.Connection, call: int) -> None:
    (attack, told) = database.execute("SELECT attack, told FROM journal WHERE call = ?", (call,)).fetchone()
    try:
        packed = pack_entries(list(unpack_entries(told, 5)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"journal entry {call} of {attack}: {error}") from error
    seal = checksum((call, attack, packed))
    database.execute("UPDATE journal SET told = ?, checksum = ? WHERE call = ?", (packed, seal, call))


# --- one writer at a time ---------------------------------------------------------------------------------------------


def is_written(folder: Path) -> bool:
    """Return whether a process is working on the run."""
    path = folder / _LOCK
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=0, uri=True)) as lock:
            lock.execute("SELECT COUNT(*) FROM sqlite_master")
    except sqlite3.Error as error:  # of other kinds where it is not a database, or may not be read
        return code_of(error) == sqlite3.SQLITE_BUSY
    return False


def locked(folder: Path) -> sqlite3.Connection:
    """Return a lock that the operating system releases when this process ends, however it ends."""
    path = folder / _LOCK
    try:
        lock = sqlite3.connect(path, timeout=_MOMENT, isolation_level=None)  # `is_written` holds it for a moment
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except BaseException:
            lock.close()
            raise
    except sqlite3.Error as error:
        code = code_of(error)
        if code == sqlite3.SQLITE_BUSY:
            raise StoreError(f"another process is working on the run in {folder}") from error
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise StoreError(f"{path} is damaged ({error}). It holds no results: delete it, then try again") from error
        raise StoreError(refusal(path, error) or f"{path} cannot be used: {error}") from error
    return lock


# --- errors -----------------------------------------------------------------------------------------------------------


def code_of(error: sqlite3.Error) -> int | None:
    """Return SQLite's code of an error without its details; None of an error that is not SQLite's own."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def refusal(path: Path, error: sqlite3.Error) -> str | None:
    """Return a sentence about a file that cannot be used for reasons outside of it; None if it is damaged."""
    match code_of(error):
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return (
                f"{path} cannot be written ({error}): make room on the disk, then resume the run. "
                "Everything up to the last model call is saved."
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return (
                f"{path} cannot be opened or written ({error}): see that its folder and its files may be read and "
                "written, or copy the folder to a place where they may"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return f"{path} is in use by another program ({error}): try again when it is done"
        case sqlite3.SQLITE_NOMEM:
            return f"{path} cannot be used: there is not enough memory"
        case _:
            return None


def damage(path: Path, what: str) -> str:
    """Return a sentence about a damaged file, and about what can still be used."""
    words = [f"{path} is damaged: {shorten(what)}."]
    intact, stored = _intact(path)
    if stored:
        words.append(f"{intact:,} of {stored:,} stored outcomes are intact.")
    if (path.parent / "results.csv").exists():
        words.append("The results.csv beside it can still be used: it was written when the command last ended.")
    words.append(f"Start a new run: parsimon run {path.parent / 'spec.toml'} --out ANOTHER")
    return " ".join(words)


def _intact(path: Path) -> tuple[int, int]:
    """Return how many outcomes are as they were written, and how many were written, as far as that can be read."""
    intact, stored, promised = 0, 0, 0
    try:
        with closing(_readable(path)) as database:
            if _version(database, path) != VERSION:
                return 0, 0
            for *row, seal in database.execute("SELECT key, value, checksum FROM about WHERE key LIKE 'progress %'"):
                promised += json.loads(row[1])[1] if checksum(tuple(row)) == seal else 0
            for *row, seal in database.execute(f"SELECT {OUTCOMES}, checksum FROM outcomes NOT INDEXED"):
                stored += 1
                intact += checksum(tuple(row)) == seal
    except (sqlite3.Error, StoreError, ValueError):
        pass
    return intact, max(stored, promised)
