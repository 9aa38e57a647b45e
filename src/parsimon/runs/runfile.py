"""The run file as SQLite sees it: its format and upgrade, opening, locking, and the meaning of SQLite's errors.

Format 4 stores a checksum with every row, over all its other columns. Format 3, of version 0.2, has none. It is read
from an upgraded copy in memory, and upgraded in place when it is opened for writing. Its facts `queries ATTACK` become
`progress ATTACK`, which also count the attack's rows, so that a lost row is noticed.

While a process writes, the file is in WAL mode, so that others can read it. Closing the file ends that mode, so that a
closed run can be read from a read-only medium.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from parsimon.errors import StoreError, shorten
from parsimon.runs.packing import pack_entries, unpack_entries_of_format_3

NUMBER_OF_FACTS = "facts"  # a fact itself, which is not counted
OUTCOME_COLUMNS = (
    *("attack", "image", "success", "queries", "ended", "uncharged", "outside", "gradients", "predicted"),
    *("grid", "point", "confidence", "out_of_range", "flat", "extra", "radii"),
    *("draws", "errors", "flagged", "first_flag"),
)
# The columns that a checksum covers, in its order.
COLUMNS = {"about": "key, value", "outcomes": ", ".join(OUTCOME_COLUMNS), "journal": "call, attack, told"}

_VERSION, _UPGRADABLE = 4, 3
_APPLICATION = 0x70617273  # "pars"
_LOCK = "lock.sqlite"
_WAIT = 0.5  # seconds, for a lock or for readers
_TRIES = 50  # to leave WAL mode while others read

# An upgraded file has the new columns at the end, and so has a new one.
_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB) WITHOUT ROWID;
CREATE TABLE outcomes (
    attack TEXT NOT NULL, image INTEGER NOT NULL, success INTEGER NOT NULL, queries INTEGER NOT NULL,
    ended TEXT NOT NULL, uncharged INTEGER NOT NULL, outside INTEGER NOT NULL, gradients INTEGER NOT NULL,
    predicted INTEGER, grid TEXT, point BLOB, confidence REAL, out_of_range INTEGER NOT NULL DEFAULT 0,
    flat INTEGER NOT NULL DEFAULT 0, extra INTEGER NOT NULL DEFAULT 0, radii BLOB, draws INTEGER NOT NULL DEFAULT 0,
    errors INTEGER NOT NULL DEFAULT 0, flagged INTEGER, first_flag INTEGER, checksum BLOB,
    PRIMARY KEY (attack, image)
);
CREATE TABLE journal (call INTEGER PRIMARY KEY, attack TEXT NOT NULL, told BLOB NOT NULL, checksum BLOB);
"""


def checksum(values: tuple[Any, ...]) -> bytes:
    """Return 64 bits that depend on every value of a row, its type and its column."""
    blobs = [value for value in values if isinstance(value, bytes)]
    rest = [("blob", len(value)) if isinstance(value, bytes) else value for value in values]
    digest = blake2b(repr(rest).encode(), digest_size=8)
    for blob in blobs:
        digest.update(blob)
    return digest.digest()


def add_row(database: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> None:
    """Insert a row with its checksum."""
    marks = "?, " * len(row) + "?"
    database.execute(f"INSERT INTO {table} ({COLUMNS[table]}, checksum) VALUES ({marks})", (*row, checksum(row)))


def select(table: str) -> str:
    """Return the query for all rows with their checksums. It avoids the index of outcomes, which has no checksums."""
    return f"SELECT {COLUMNS[table]}, checksum FROM {table}{' NOT INDEXED' if table == 'outcomes' else ''}"


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Write everything or nothing."""
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
    """Let all queries see the file at the same moment."""
    database.execute("BEGIN")
    try:
        yield
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


# --- opening ----------------------------------------------------------------------------------------------------------


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open or create the file. A file that is damaged or has another format is not changed."""
    with _closed_on_error(sqlite3.connect(path, isolation_level=None)) as database:
        (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if not tables and not _pragma(database, "application_id"):  # new, or its creator was killed early
            header = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
            database.executescript(f"BEGIN; {header} {_SCHEMA} COMMIT;")
        version = _version(database, path)
        check_pages(database)
        if version == _UPGRADABLE:
            _upgrade(database)
        return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the file without changing the folder of a closed run; return an upgraded copy of format 3."""
    with _closed_on_error(_open_readable(path)) as database:
        if _version(database, path) == _VERSION:
            return database
        with closing(database), _closed_on_error(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            database.backup(copy)
            _upgrade(copy)
            return copy


def _open_readable(path: Path) -> sqlite3.Connection:
    """Open a file that may be on a read-only medium.

    SQLite must write in order to read a file in WAL mode, or one that a killed writer left. If it cannot write, a file
    without a log beside it is complete, and is opened as immutable.
    """
    try:
        return _connect(path, "mode=rw")
    except sqlite3.OperationalError as error:
        logs = [path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-journal")]
        complete = not any(log.exists() and log.stat().st_size for log in logs)
        if not complete or _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    return _connect(path, "immutable=1")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    with _closed_on_error(sqlite3.connect(uri, isolation_level=None, uri=True)) as database:
        database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        return database


@contextmanager
def _closed_on_error(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    with ExitStack() as stack:
        stack.enter_context(closing(database))
        yield database
        stack.pop_all()


def begin_writing(database: sqlite3.Connection) -> None:
    """Let others read while this process writes, and do not wait for the disk."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")


def close_after_writing(database: sqlite3.Connection) -> None:
    """Leave WAL mode and close the file. It stays in WAL mode if others keep reading it."""
    with closing(database):
        for _ in range(_TRIES):
            try:
                database.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.Error as error:
                if _code(error) != sqlite3.SQLITE_BUSY:  # such as a full disk: everything is saved, in WAL mode
                    return
                time.sleep(_WAIT / _TRIES)
            else:
                return


def check_pages(database: sqlite3.Connection) -> None:
    """Raise an error if the structure of the file is damaged, so that rows may be lost."""
    problem = str(_pragma(database, "quick_check(1)"))
    if problem != "ok":
        raise sqlite3.DatabaseError(" ".join(problem.split()))


def _pragma(database: sqlite3.Connection, name: str) -> Any:
    return database.execute(f"PRAGMA {name}").fetchone()[0]


# --- format -----------------------------------------------------------------------------------------------------------


def _version(database: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file's format; refuse a file that is not a run, or of an unknown version."""
    version = int(_pragma(database, "user_version"))
    if _pragma(database, "application_id") != _APPLICATION:
        raise StoreError(f"{path} is a database, but not of a run")
    if version > _VERSION:
        raise StoreError(
            f"{path} was written by a later parsimon (format {version}; this one knows {_VERSION}): update parsimon"
        )
    if version < _UPGRADABLE:
        raise StoreError(
            f"{path} was written by an earlier parsimon (format {version}; this one knows {_UPGRADABLE} and "
            f"{_VERSION}). It is not changed, and its results.csv and tables can still be read. To continue it, use "
            "the version in its environment.json. To repeat it: "
            f"parsimon run {path.parent / 'spec.toml'} --out ANOTHER"
        )
    return version


def _upgrade(database: sqlite3.Connection) -> None:
    """Turn format 3 into format 4, completely or not at all."""
    with transaction(database):
        for column in ("out_of_range", "flat", "extra"):
            database.execute(f"ALTER TABLE outcomes ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
        database.execute("ALTER TABLE outcomes ADD COLUMN radii BLOB")
        for column in ("draws", "errors"):
            database.execute(f"ALTER TABLE outcomes ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
        for column in ("flagged", "first_flag"):
            database.execute(f"ALTER TABLE outcomes ADD COLUMN {column} INTEGER")
        for table in COLUMNS:
            database.execute(f"ALTER TABLE {table} ADD COLUMN checksum BLOB")
        try:
            _upgrade_facts(database)
            _upgrade_journal(database)
        except (TypeError, ValueError, RecursionError) as error:
            raise sqlite3.DatabaseError(str(error)) from error
        for number, *row in database.execute(f"SELECT rowid, {COLUMNS['outcomes']} FROM outcomes").fetchall():
            database.execute("UPDATE outcomes SET checksum = ? WHERE rowid = ?", (checksum(tuple(row)), number))
        database.execute(f"PRAGMA user_version = {_VERSION}")


def _upgrade_facts(database: sqlite3.Connection) -> None:
    facts = dict(database.execute("SELECT key, value FROM about"))
    outcomes, entries = (
        dict(database.execute(f"SELECT attack, COUNT(*) FROM {table} GROUP BY attack"))
        for table in ("outcomes", "journal")
    )
    charged = {key.removeprefix("queries ") for key in facts if key.startswith("queries ")}
    for attack in charged | outcomes.keys() | entries.keys():
        queries = json.loads(facts.pop(f"queries {attack}", "0"))
        facts[f"progress {attack}"] = json.dumps([queries, outcomes.get(attack, 0), entries.get(attack, 0)])
    facts[NUMBER_OF_FACTS] = json.dumps(len(facts))
    database.execute("DELETE FROM about")
    for fact in facts.items():
        add_row(database, "about", fact)


def _upgrade_journal(database: sqlite3.Connection) -> None:
    for (call,) in database.execute("SELECT call FROM journal").fetchall():  # one at a time, since they are large
        (attack, packed) = database.execute("SELECT attack, told FROM journal WHERE call = ?", (call,)).fetchone()
        try:
            row = (call, attack, pack_entries(list(unpack_entries_of_format_3(packed))))
        except (TypeError, ValueError) as error:
            raise ValueError(f"journal entry {call} of {attack}: {error}") from error
        database.execute("DELETE FROM journal WHERE call = ?", (call,))
        add_row(database, "journal", row)


# --- one writer at a time ---------------------------------------------------------------------------------------------


def is_written(folder: Path) -> bool:
    """Return whether a process is writing the run."""
    path = folder / _LOCK
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=0, uri=True)) as lock:
            lock.execute("SELECT COUNT(*) FROM sqlite_master")
    except sqlite3.Error as error:  # another code if it is not a database, or cannot be read
        return _code(error) == sqlite3.SQLITE_BUSY
    return False


def lock_folder(folder: Path) -> sqlite3.Connection:
    """Return a lock that the operating system releases when this process ends, even if it is killed."""
    path = folder / _LOCK
    try:
        # `is_written` may hold it for a moment.
        with _closed_on_error(sqlite3.connect(path, timeout=_WAIT, isolation_level=None)) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            return lock
    except sqlite3.Error as error:
        code = _code(error)
        if code == sqlite3.SQLITE_BUSY:
            raise StoreError(f"another process is working on the run in {folder}") from error
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise StoreError(f"{path} is damaged ({error}). It holds no results: delete it, then try again") from error
        raise StoreError(refusal(path, error) or f"{path} cannot be used: {error}") from error


# --- errors -----------------------------------------------------------------------------------------------------------


def _code(error: sqlite3.Error) -> int | None:
    """Return SQLite's primary error code, or None if Python raised the error."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def refusal(path: Path, error: sqlite3.Error) -> str | None:
    """Return the message for a file that cannot be used for outside reasons, or None if it is damaged."""
    match _code(error):
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return (
                f"{path} cannot be written ({error}): make room on the disk, then resume the run. "
                "Everything up to the last model call is saved."
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return (
                f"{path} cannot be opened or written ({error}): check that its folder and its files may be read and "
                "written, or copy the folder elsewhere"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return f"{path} is in use by another program ({error}): try again later"
        case sqlite3.SQLITE_NOMEM:
            return f"{path} cannot be used: there is not enough memory"
        case _:
            return None


def damage(path: Path, what: str) -> str:
    """Return the message for a damaged file, which also says what can still be used."""
    sentences = [f"{path} is damaged: {shorten(what)}."]
    intact, stored = _count_intact(path)
    if stored:
        sentences.append(f"{intact:,} of {stored:,} stored outcomes are intact.")
    if (path.parent / "results.csv").exists():
        sentences.append("The results.csv beside it can still be used: it was written when the command last ended.")
    sentences.append(f"Start a new run: parsimon run {path.parent / 'spec.toml'} --out ANOTHER")
    return " ".join(sentences)


def _count_intact(path: Path) -> tuple[int, int]:
    """Return how many outcomes are intact, and how many were written, as far as the file can be read."""
    intact, stored, expected = 0, 0, 0
    try:
        with closing(_open_readable(path)) as database:
            if _version(database, path) != _VERSION:
                return 0, 0
            for *row, seal in database.execute(f"{select('about')} WHERE key LIKE 'progress %'"):
                expected += json.loads(row[1])[1] if checksum(tuple(row)) == seal else 0
            for *row, seal in database.execute(select("outcomes")):
                stored += 1
                intact += checksum(tuple(row)) == seal
    except (sqlite3.Error, StoreError, ValueError):
        pass
    return intact, max(stored, expected)
