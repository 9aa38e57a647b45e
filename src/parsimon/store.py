"""The run file: one SQLite database with every outcome, and the journal of what is still in work.

Tables:

- `about`: facts of the run, such as which images were chosen, how many queries each attack was charged so far, and how
  much was sent to a model behind a network;
- `outcomes`: a row for each attack and image, written when the attack on it ends, and never changed after that. Its
  point is a bit for each block, or what differs from the original image, bit for bit;
- `journal`: a row for each model call, with what it told the searches that go on. An image's outcome and the journal
  of the call that ended it are written together, so whenever the process dies, an image is either ended or can be
  resumed from its last reply. The journal of an attack is deleted when the attack is over.

A write is handed to the operating system after each model call, so that killing the process loses nothing; it is not
forced to the disk each time, so a power cut can lose the last moments, but never leaves a broken file.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from parsimon.blocks import Grid
from parsimon.checks import ImageSource
from parsimon.errors import InputError, StoreError
from parsimon.protocol import Corner, Image, Outcome, Picture, Point, Told, Traffic
from parsimon.verify import Verification

_VERSION = 3
_APPLICATION = 0x70617273  # "pars"
_LOCK, _MOMENT = "lock.sqlite", 0.5  # seconds
_COMPACT_AFTER = 64 * 2**20  # bytes of journal

_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE outcomes (
    attack TEXT NOT NULL, image INTEGER NOT NULL, success INTEGER NOT NULL, queries INTEGER NOT NULL,
    ended TEXT NOT NULL, uncharged INTEGER NOT NULL, outside INTEGER NOT NULL, gradients INTEGER NOT NULL,
    predicted INTEGER, grid TEXT, point BLOB, confidence REAL, PRIMARY KEY (attack, image)
);
CREATE TABLE journal (call INTEGER PRIMARY KEY, attack TEXT NOT NULL, told BLOB NOT NULL);
"""
_FACT = "INSERT OR REPLACE INTO about VALUES (?, ?)"


class Store:
    """A run's file, open for one writer at a time; others may read it meanwhile."""

    def __init__(self, folder: Path, images: ImageSource, *, write: bool = False) -> None:
        """`images` are those of the run: what an attack has made of one is stored as what differs from it."""
        self._path = folder / "run.sqlite"
        self._images = images
        self._lock = _locked(folder) if write else None
        with self._errors():
            if not write and not self._path.exists():
                raise StoreError(f"{folder} holds no run: there is no {self._path.name} in it")
            self._database = sqlite3.connect(self._path, isolation_level=None)
            if write and self._is_empty():
                self._create()
            self._check()
            if write:
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = NORMAL")
        self._written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    # --- facts ------------------------------------------------------------------------------------------------------

    def know(self, key: str, value: Any) -> None:
        with self._transaction():
            self._database.execute(_FACT, (key, json.dumps(value)))

    def hold(self, key: str, value: Any) -> None:
        """Write down a fact of what the run is made on, or see that it is still the same."""
        before = self.known(key)
        if before is None:
            self.know(key, value)
        elif before != value:
            raise InputError(
                f"this run was begun with another {key}: its model or its data have changed since, so going on would "
                "mix results. Start a new run, or bring back what it was begun with."
            )

    def known(self, key: str) -> Any:
        """The fact, or None."""
        with self._errors():
            row = self._database.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    # --- what has ended, and what is in work ------------------------------------------------------------------------

    def save(self, attack: str, ended: Sequence[Outcome], told: Sequence[Told], queries: int | None = None) -> None:
        """All that one model call has brought, at once; and how many queries were charged so far, for who looks on."""
        with self._transaction():
            if queries is not None:  # never fewer than before: a run that goes on counts again what its searches know
                charged = max(queries, self.queries(attack))
                self._database.execute(_FACT, (f"queries {attack}", json.dumps(charged)))
            self._database.executemany(
                "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [self._row(attack, outcome) for outcome in ended],
            )
            if told:
                packed = _packed(told)
                self._database.execute("INSERT INTO journal (attack, told) VALUES (?, ?)", (attack, packed))
                self._written += len(packed)
        if self._written > _COMPACT_AFTER:
            self._compact(attack)

    def outcomes(self, attack: str) -> dict[int, Outcome]:
        """Of the images whose attack has ended."""
        with self._errors():
            rows = self._database.execute("SELECT * FROM outcomes WHERE attack = ? ORDER BY image", (attack,))
            return {row[1]: self._outcome(row) for row in rows}

    def ended_after(self, place: int) -> list[tuple[int, str, Outcome]]:
        """What has ended, of all attacks, in the order in which it did, each with its place in it; those before are not
        read.
        """
        with self._errors():
            rows = self._database.execute("SELECT rowid, * FROM outcomes WHERE rowid > ? ORDER BY rowid", (place,))
            return [(number, row[0], self._outcome(tuple(row))) for number, *row in rows]

    def queries(self, attack: str) -> int:
        """Charged so far, for images in work too."""
        return self.known(f"queries {attack}") or 0

    def count(self, attack: str, traffic: Traffic | None) -> None:
        """Of a model behind a network: what went there so far. Written before what it brought, which may be lost."""
        if traffic is not None:
            self.know(f"traffic {attack}", asdict(traffic))

    def traffic(self, attack: str) -> Traffic | None:
        """What went to a model behind a network; None of other models."""
        known = self.known(f"traffic {attack}")
        return None if known is None else Traffic(**known)

    def verification(self, attack: str) -> Verification | None:
        """Return what the second look at the successes found; None where there was none."""
        known = self.known(f"verified {attack}")
        return None if known is None else Verification(known["queried"], tuple(known["failed"]))

    def told(self, attack: str) -> dict[int, Told]:
        """What the searches of images still in work were told."""
        parts: dict[int, list[Told]] = defaultdict(list)
        with self._errors():
            ended = {row[0] for row in self._database.execute("SELECT image FROM outcomes WHERE attack = ?", (attack,))}
            for (packed,) in self._database.execute(
                "SELECT told FROM journal WHERE attack = ? ORDER BY call", (attack,)
            ):
                for told in _unpacked(packed):
                    if told.image not in ended:
                        parts[told.image].append(told)
        return {index: joined(those) for index, those in parts.items()}

    def finish(self, attack: str) -> None:
        """Forget the journal of an attack that is over."""
        with self._transaction():
            self._database.execute("DELETE FROM journal WHERE attack = ?", (attack,))
        with self._errors():
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _compact(self, attack: str) -> None:
        """Drop from the journal what ended images were told; it would grow with the run, not with what is in work."""
        live = list(self.told(attack).values())
        with self._transaction():
            self._database.execute("DELETE FROM journal WHERE attack = ?", (attack,))
            self._database.execute("INSERT INTO journal (attack, told) VALUES (?, ?)", (attack, _packed(live)))
        self._written = 0

    def _row(self, attack: str, outcome: Outcome) -> tuple[Any, ...]:
        grid, point = self._point_columns(outcome)
        return (
            *(attack, outcome.index, int(outcome.success), outcome.queries, outcome.ended),
            *(outcome.uncharged, outcome.outside, outcome.gradients, outcome.predicted, grid, point),
            outcome.confidence,
        )

    def _outcome(self, row: tuple[Any, ...]) -> Outcome:
        _, index, success, queries, ended, uncharged, outside, gradients, predicted, grid, packed, confidence = row
        point = None if packed is None else self._point(index, grid, packed)
        return Outcome(
            index, bool(success), queries, ended, uncharged, outside, 0, gradients, predicted, point, confidence
        )

    def _point_columns(self, outcome: Outcome) -> tuple[str | None, bytes | None]:
        """A corner as a bit for each block, with its grid; an image as its difference from the original."""
        point = outcome.point
        if point is None:
            return None, None
        if isinstance(point, Corner):
            rows, columns = point.grid.noise
            return f"{rows} {columns} {point.grid.block}", zlib.compress(point.bits)
        return None, _difference(point.pixels, self._original(outcome.index))

    def _point(self, index: int, grid: str | None, packed: bytes) -> Point:
        if grid is None:
            original = self._original(index)
            return Picture(original.shape, _added(packed, original))
        rows, columns, block = map(int, grid.split())
        return Corner(Grid(self._shape, (rows, columns), block), zlib.decompress(packed))

    @cached_property
    def _shape(self) -> tuple[int, int, int]:
        """Of all images: a corner needs no more of its own, which may have to be read from far away."""
        channels, height, width = self._original(0).shape
        return channels, height, width

    def _original(self, index: int) -> Image:
        return np.asarray(self._images[index], np.float32)

    # --- the file ---------------------------------------------------------------------------------------------------

    def _is_empty(self) -> bool:
        """Whether nothing was ever written: the file is new, or the process that made it was killed before."""
        (tables,) = self._database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        (application,) = self._database.execute("PRAGMA application_id").fetchone()
        return not tables and not application

    def _create(self) -> None:
        self._database.executescript(
            f"BEGIN; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; {_SCHEMA} COMMIT;"
        )

    def _check(self) -> None:
        (application,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise StoreError(f"{self._path} is a database, but not of a run")
        if version > _VERSION:
            raise StoreError(
                f"{self._path} was written by a later parsimon (format {version}; this one knows {_VERSION}): update it"
            )
        if version < _VERSION:
            raise StoreError(
                f"{self._path} was written by an earlier parsimon (format {version}; this one knows {_VERSION}) and is "
                "left as it is: its results.csv and its tables can still be read. To go on with it, use the version in "
                f"its environment.json; to have it anew: parsimon run {self._path.parent / 'spec.toml'} --out ANOTHER"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as sentences."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "I/O" in str(error):
                raise StoreError(
                    f"{self._path} cannot be written ({error}): make room on the disk, then resume the run. "
                    "Everything up to the last model call is saved."
                ) from error
            raise StoreError(f"{self._path} cannot be used: {error}") from error
        except (sqlite3.DatabaseError, zlib.error) as error:
            raise StoreError(
                f"{self._path} is damaged ({error}). What can be read of it may be saved with sqlite3's .recover"
            ) from error


def joined(parts: Sequence[Told]) -> Told:
    """What was told of one image, call after call, as one."""
    gradients = [part.gradient for part in parts if part.gradient is not None]
    return Told(
        parts[0].image,
        np.concatenate([part.loss for part in parts]),
        np.concatenate(gradients) if gradients else None,
        sum(part.outside for part in parts),
        sum(part.uncharged for part in parts),
    )


def is_written(folder: Path) -> bool:
    """Whether a process is working on the run."""
    path = folder / _LOCK
    if not path.exists():
        return False
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("SELECT COUNT(*) FROM sqlite_master")
        except sqlite3.OperationalError:  # it is locked
            return True
    return False


def _locked(folder: Path) -> sqlite3.Connection:
    """A lock that the operating system lets go when this process ends, however it ends."""
    # Who asks whether the run `is_written` holds it too, for a moment.
    lock = sqlite3.connect(folder / _LOCK, timeout=_MOMENT, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        raise StoreError(f"another process is working on the run in {folder}") from error
    return lock


def _difference(pixels: Image, original: Image) -> bytes:
    """The bits of floats less those of others, which for near floats are small whole numbers.

    The sign goes last, so that what is small begins with zeros, and all first bytes come first, for zlib to see them.
    """
    steps = pixels.reshape(-1).view(np.int32) - np.ascontiguousarray(original).reshape(-1).view(np.int32)
    return zlib.compress(((steps << 1) ^ (steps >> 31)).view(np.uint8).reshape(-1, 4).T.tobytes())


def _added(packed: bytes, original: Image) -> bytes:
    """The other way round; no bit is lost."""
    coded = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(4, -1).T.copy().view(np.uint32).reshape(-1)
    steps = (coded >> 1).view(np.int32) ^ -(coded & 1).astype(np.int32)
    return (np.ascontiguousarray(original).reshape(-1).view(np.int32) + steps).tobytes()


def _packed(told: Sequence[Told]) -> bytes:
    """Five whole numbers for each image (which, how many losses, gradients, outside, not charged), then all."""
    lengths = [(each.image, len(each.loss), 0 if each.gradient is None else len(each.gradient)) for each in told]
    heads = [(*numbers, each.outside, each.uncharged) for numbers, each in zip(lengths, told, strict=True)]
    gradients = [each.gradient for each in told if each.gradient is not None]
    shape = gradients[0].shape[1:] if gradients else (0, 0, 0)
    parts = [
        np.array([len(told), *shape], np.int64).tobytes(),
        np.array(heads, np.int64).tobytes(),
        np.concatenate([each.loss for each in told]).astype(np.float64).tobytes(),
        *(np.ascontiguousarray(each, np.float32).tobytes() for each in gradients),
    ]
    return b"".join(parts)


def _unpacked(packed: bytes) -> Iterator[Told]:
    count, *shape = np.frombuffer(packed, np.int64, 4).tolist()
    heads = np.frombuffer(packed, np.int64, 5 * count, 32).reshape(count, 5)
    losses = np.frombuffer(packed, np.float64, int(heads[:, 1].sum()), 32 + heads.nbytes)
    gradients = np.frombuffer(packed, np.float32, offset=32 + heads.nbytes + losses.nbytes)
    gradients = gradients.reshape(-1, *shape) if len(gradients) else gradients
    loss_at = gradient_at = 0
    for index, points, with_gradient, outside, uncharged in heads.tolist():
        gradient = gradients[gradient_at : gradient_at + with_gradient] if with_gradient else None
        yield Told(index, losses[loss_at : loss_at + points], gradient, outside, uncharged)
        loss_at, gradient_at = loss_at + points, gradient_at + with_gradient
