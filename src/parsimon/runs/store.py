"""The run file: one SQLite database with every outcome, and the journal of what is still in work.

Tables:

- `about`: facts of the run, such as which images were chosen, how many queries each attack was charged so far, and how
  much was sent to a model behind a network;
- `outcomes`: a row for each attack and image, written when the attack on it ends, and never changed after that. Its
  point is a bit for each block, or what differs from the original image, bit for bit;
- `journal`: a row for each model call, with what it told the searches that go on. An image's outcome and the journal
  of the call that ended it are written together, so whenever the process dies, an image is either ended or can be
  resumed from its last reply. The journal of an attack is deleted when the attack is over.

Each row has a checksum, and the rows of each attack and the facts are counted. Both are verified by whoever reads them,
so that a damaged file is an error and never another result. `runfile` has the details.

A write is handed to the operating system after each model call, so that killing the process loses nothing; it is not
forced to the disk each time, so a power cut can lose the last moments, but never leaves a broken file.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np

from parsimon.core.grid import first_grid
from parsimon.core.model import Traffic
from parsimon.core.types import Corner, Ended, Image, ImageSource, JournalEntry, Outcome, Picture, Point
from parsimon.errors import InputError, StoreError, first_line, quote
from parsimon.results.result import Verification
from parsimon.runs import packing, runfile
from parsimon.runs.runfile import checksum, snapshot, transaction

_COMPACT_AFTER = 64 * 2**20  # bytes of journal
_ADD_OUTCOME = f"INSERT INTO outcomes ({runfile.OUTCOMES}, checksum) VALUES ({'?, ' * len(runfile.COLUMNS)}?)"
# The table is verified when a run is opened, and the index of its key is not.
_GET_OUTCOMES = f"SELECT rowid, {runfile.OUTCOMES}, checksum FROM outcomes NOT INDEXED"
_GET_ENTRIES = "SELECT told, call, attack, checksum FROM journal"

is_written = runfile.is_written


class Progress(NamedTuple):
    """How far an attack is."""

    queries: int = 0  # charged so far, for images in work too
    outcomes: int = 0  # rows that are stored
    journal: int = 0  # rows that are stored


class Store:
    """A run's file, open for one writer at a time; others may read it meanwhile."""

    def __init__(self, folder: Path, images: ImageSource, *, write: bool = False) -> None:
        """`images` are those of the run: what an attack has made of one is stored as what differs from it."""
        self._path = folder / "run.sqlite"
        self._images = images
        self._written = 0
        if not write and not self._path.exists():
            raise StoreError(f"{folder} holds no run: there is no {self._path.name} in it")
        self._lock = runfile.locked(folder) if write else None
        with ExitStack() as opened:
            if self._lock is not None:
                opened.enter_context(closing(self._lock))
            with self._errors():
                open_file = runfile.open_for_writing if write else runfile.open_for_reading
                self._database = open_file(self._path)
            opened.callback(runfile.close_after_writing if write else sqlite3.Connection.close, self._database)
            if write:
                self._verify_rows()
                with self._errors():
                    runfile.begin_writing(self._database)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def verify(self) -> None:
        """Raise an error if anything in the file is damaged. It reads all of it.

        A file that is open for writing was verified when it was opened.
        """
        with self._errors():
            runfile.check_pages(self._database)
        self._verify_rows()

    def _verify_rows(self) -> None:
        """Verify all rows, also those that nobody asks for: a fact may be missing because its name is damaged."""
        with self._errors(), snapshot(self._database):
            facts = self._database.execute("SELECT key, value, checksum FROM about").fetchall()
            for fact in facts:
                _verify_fact(*fact)
            if facts and self.get_fact(runfile.NUMBER_OF_FACTS) != len(facts) - 1:
                raise sqlite3.DatabaseError("facts of the run are missing")
            with closing(self._database.execute(_GET_OUTCOMES)) as rows:
                for row in rows:
                    _verify_outcome(row)
            with closing(self._database.execute(_GET_ENTRIES)) as rows:
                for entry in rows:
                    _verify_entry(*entry)

    # --- facts ------------------------------------------------------------------------------------------------------

    def set_fact(self, key: str, value: Any) -> None:
        with self._errors(), transaction(self._database):
            self._set_fact(key, value)

    def check_fact(self, key: str, value: Any) -> None:
        """Write down a fact of what the run is made on, or see that it is still the same."""
        before = self.get_fact(key)
        if before is None:
            self.set_fact(key, value)
        elif before != value:
            raise InputError(
                f"this run was begun with another {key}: its model or its data have changed since, so going on would "
                "mix results. Start a new run, or bring back what it was begun with."
            )

    def get_fact(self, key: str) -> Any:
        """Return the fact, or None."""
        with self._errors():
            row = self._database.execute("SELECT key, value, checksum FROM about WHERE key = ?", (key,)).fetchone()
            return None if row is None else _fact(*row)

    def _set_fact(self, key: str, value: Any) -> None:
        row = runfile.fact_row(key, value)
        if self._database.execute(runfile.CHANGE_FACT, (*row[1:], key)).rowcount:
            return
        self._database.execute(runfile.ADD_FACT, row)
        if key != runfile.NUMBER_OF_FACTS:
            (others,) = self._database.execute(
                "SELECT COUNT(*) FROM about WHERE key != ?", (runfile.NUMBER_OF_FACTS,)
            ).fetchone()
            self._set_fact(runfile.NUMBER_OF_FACTS, others)

    # --- what has ended, and what is in work ------------------------------------------------------------------------

    def save(
        self, attack: str, ended: Sequence[Outcome], told: Sequence[JournalEntry], queries: int | None = None
    ) -> None:
        """Write all that one model call has brought, at once, and how many queries were charged so far."""
        rows = [self._row(attack, outcome) for outcome in ended]
        packed = packing.pack_entries(told) if told else None
        with self._errors(), transaction(self._database):
            before = self._progress(attack)
            # Never fewer than before: a run that goes on counts again what its searches know.
            charged = before.queries if queries is None else max(queries, before.queries)
            entries = before.journal + (packed is not None)
            self._set_fact(f"progress {attack}", Progress(charged, before.outcomes + len(rows), entries))
            self._database.executemany(_ADD_OUTCOME, rows)
            if packed is not None:
                self._add_entry(attack, packed)
        if self._written > _COMPACT_AFTER:
            self._compact(attack)

    def outcomes(self, attack: str) -> dict[int, Outcome]:
        """Return the outcomes of the images whose attack has ended."""
        with self._errors(), snapshot(self._database):
            with closing(self._database.execute(f"{_GET_OUTCOMES} WHERE attack = ? ORDER BY image", (attack,))) as rows:
                outcomes = {outcome.index: outcome for outcome in map(self._outcome, rows)}
            stored = self._progress(attack).outcomes
            if len(outcomes) != stored:
                raise sqlite3.DatabaseError(f"{len(outcomes):,} of {stored:,} outcomes of {attack} are there")
        return outcomes

    def ended_after(self, place: int) -> list[tuple[int, str, Outcome]]:
        """Return what has ended after a place, of all attacks in the order in which it did, each with its place.

        The first outcome has place 1. Those before are not read.
        """
        with self._errors(), snapshot(self._database):
            with closing(self._database.execute(f"{_GET_OUTCOMES} WHERE rowid > ? ORDER BY rowid", (place,))) as rows:
                ended = [(row[0], row[1], self._outcome(row)) for row in rows]
            names = self._database.execute("SELECT key FROM about WHERE key LIKE 'progress %'").fetchall()
            stored = sum(self._progress(key.removeprefix("progress ")).outcomes for (key,) in names)
            if [number for number, *_ in ended] != list(range(place + 1, stored + 1)):
                raise sqlite3.DatabaseError(f"{place + len(ended):,} of {stored:,} outcomes are there")
        return ended

    def queries(self, attack: str) -> int:
        """Return how many queries were charged so far, for images in work too."""
        with self._errors():
            return self._progress(attack).queries

    def count(self, attack: str, traffic: Traffic | None) -> None:
        """Of a model behind a network: what went there so far. Written before what it brought, which may be lost."""
        if traffic is not None:
            self.set_fact(f"traffic {attack}", asdict(traffic))

    def traffic(self, attack: str) -> Traffic | None:
        """Return what went to a model behind a network; None of other models."""
        known = self.get_fact(f"traffic {attack}")
        if known is None:
            return None
        with self._errors(), _decoding(f"the traffic of {attack}"):
            return Traffic(_count(known["attempted"]), _count(known["answered"]))

    def verification(self, attack: str) -> Verification | None:
        """Return what the second look at the successes found; None where there was none."""
        known = self.get_fact(f"verified {attack}")
        if known is None:
            return None
        with self._errors(), _decoding(f"the verification of {attack}"):
            return Verification(_count(known["queried"]), tuple(map(_count, known["failed"])))

    def journal(self, attack: str) -> dict[int, JournalEntry]:
        """Return what the searches of images still in work were told."""
        parts: dict[int, list[JournalEntry]] = defaultdict(list)
        entries = 0
        with self._errors(), snapshot(self._database):
            images = self._database.execute("SELECT image FROM outcomes NOT INDEXED WHERE attack = ?", (attack,))
            ended = {image for (image,) in images}
            with closing(self._database.execute(f"{_GET_ENTRIES} WHERE attack = ? ORDER BY call", (attack,))) as rows:
                for entry in rows:
                    entries += 1
                    for told in _entry(*entry):
                        if told.image not in ended:
                            parts[told.image].append(told)
            stored = self._progress(attack).journal
            if entries != stored:
                raise sqlite3.DatabaseError(f"{entries:,} of {stored:,} journal entries of {attack} are there")
        return {index: joined(those) for index, those in parts.items()}

    def finish(self, attack: str) -> None:
        """Forget the journal of an attack that is over."""
        with self._errors(), transaction(self._database):
            self._database.execute("DELETE FROM journal WHERE attack = ?", (attack,))
            self._set_fact(f"progress {attack}", self._progress(attack)._replace(journal=0))
        with self._errors():
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _compact(self, attack: str) -> None:
        """Drop from the journal what ended images were told; it would grow with the run, not with what is in work."""
        live = list(self.journal(attack).values())
        with self._errors(), transaction(self._database):
            self._database.execute("DELETE FROM journal WHERE attack = ?", (attack,))
            self._set_fact(f"progress {attack}", self._progress(attack)._replace(journal=1))
            self._add_entry(attack, packing.pack_entries(live))
        self._written = 0

    def _progress(self, attack: str) -> Progress:
        known = self.get_fact(f"progress {attack}")
        with _decoding(f"the progress of {attack}"):
            return Progress() if known is None else Progress(*map(_count, known))

    def _add_entry(self, attack: str, packed: bytes) -> None:
        (call,) = self._database.execute("SELECT COALESCE(MAX(call), 0) + 1 FROM journal").fetchone()
        seal = checksum((call, attack, packed))
        self._database.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", (call, attack, packed, seal))
        self._written += len(packed)

    def _row(self, attack: str, outcome: Outcome) -> tuple[Any, ...]:
        grid, point = self._point_columns(outcome)
        confidence = None if outcome.confidence is None else float(outcome.confidence)
        row = (
            *(attack, outcome.index, int(outcome.success), outcome.queries, outcome.ended),
            *(outcome.uncharged, outcome.outside, outcome.gradients, outcome.predicted, grid, point),
            *(confidence, outcome.out_of_range),
        )
        return *row, checksum(row)

    def _outcome(self, row: tuple[Any, ...]) -> Outcome:
        _verify_outcome(row)
        _, attack, index, success, queries, ended, uncharged, outside, gradients, *rest = row
        with _decoding(f"the outcome of {attack} on image {index}"):
            predicted, grid, packed, confidence, out_of_range, _ = rest
            if ended not in get_args(Ended):
                raise ValueError("it ended in no known way")
            return Outcome(
                index=_count(index),
                success=bool(_count(success)),
                queries=_count(queries),
                ended=ended,
                uncharged=_count(uncharged),
                outside=_count(outside),
                out_of_range=_count(out_of_range),
                gradients=_count(gradients),
                predicted=None if predicted is None else _count(predicted),
                point=None if packed is None else self._point(index, grid, packed),
                confidence=None if confidence is None else float(confidence),
            )

    def _point_columns(self, outcome: Outcome) -> tuple[str | None, bytes | None]:
        """Return a corner as a bit for each block, with its grid; an image as its difference from the original."""
        point = outcome.point
        if point is None:
            return None, None
        if isinstance(point, Corner):
            rows, columns = point.grid.noise
            return f"{rows} {columns} {point.grid.block}", packing.pack_bits(point.bits)
        return None, packing.pack_difference(point.pixels, self._original(outcome.index))

    def _point(self, index: int, grid: str | None, packed: bytes) -> Point:
        if grid is None:
            original = self._original(index)
            return Picture(original.shape, packing.unpack_difference(packed, original))
        rows, columns, block = map(int, grid.split())
        cut = first_grid(self._shape, block, (rows, columns))
        return Corner(cut, packing.unpack_bits(packed, cut.count))

    @cached_property
    def _shape(self) -> tuple[int, int, int]:
        """Of all images: a corner needs no more of its own, which may have to be read from far away."""
        channels, height, width = self._original(0).shape
        return channels, height, width

    def _original(self, index: int) -> Image:
        return np.asarray(self._images[index], np.float32)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into sentences."""
        try:
            yield
        except sqlite3.Error as error:
            refusal = runfile.refusal(self._path, error)
            raise (StoreError(refusal) if refusal else self.damaged(str(error))) from error
        except UnicodeDecodeError as error:  # of SQLite's own message, which quotes what is damaged
            raise self.damaged("its schema is malformed") from error

    def damaged(self, what: str) -> StoreError:
        """Return an error that says what is damaged, and what can still be used."""
        return StoreError(runfile.damage(self._path, what))


def joined(parts: Sequence[JournalEntry]) -> JournalEntry:
    """Return what was told of one image, call after call, as one."""
    gradients = [part.gradient for part in parts if part.gradient is not None]
    return JournalEntry(
        parts[0].image,
        np.concatenate([part.loss for part in parts]),
        np.concatenate(gradients) if gradients else None,
        sum(part.outside for part in parts),
        sum(part.uncharged for part in parts),
        sum(part.out_of_range for part in parts),
    )


def _fact(key: str, value: str, seal: bytes) -> Any:
    _verify_fact(key, value, seal)
    with _decoding(f"the fact {quote(key)}"):
        return json.loads(value)


def _verify_fact(key: str, value: str, seal: bytes) -> None:
    if checksum((key, value)) != seal:
        raise sqlite3.DatabaseError(f"the fact {quote(key)} (its checksum is wrong)")


def _verify_outcome(row: tuple[Any, ...]) -> None:
    _, *values, seal = row
    if checksum(tuple(values)) != seal:
        raise sqlite3.DatabaseError(f"the outcome of {values[0]} on image {values[1]} (its checksum is wrong)")


def _entry(packed: bytes, call: int, attack: str, seal: bytes) -> list[JournalEntry]:
    _verify_entry(packed, call, attack, seal)
    with _decoding(f"journal entry {call} of {attack}"):
        return list(packing.unpack_entries(packed))


def _verify_entry(packed: bytes, call: int, attack: str, seal: bytes) -> None:
    if checksum((call, attack, packed)) != seal:
        raise sqlite3.DatabaseError(f"journal entry {call} of {attack} (its checksum is wrong)")


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{quote(value)} is not a count")
    return value


@contextmanager
def _decoding(what: str) -> Iterator[None]:
    """Say what is damaged, whatever its bytes make Python complain about."""
    try:
        yield
    except (TypeError, ValueError, LookupError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"{what} ({first_line(error)})") from error
