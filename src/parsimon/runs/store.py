"""The run file: one SQLite database with all outcomes, and a journal of the unfinished images.

Tables:

- `about`: facts about the run, such as the chosen images, and the queries and traffic of each attack so far;
- `outcomes`: one row per attack and image, written when the image is finished, and never changed. A corner is stored as
  one bit per block, any other image as its difference from the original;
- `journal`: one row per model call, with the losses of the unfinished images. Outcomes and journal of one call are
  written together. If the process is killed, every image is therefore either finished, or can be resumed after its
  last loss. The journal of an attack is deleted when the attack is finished.

Each row has a checksum, and the facts and the rows of each attack are counted. Every reader verifies both, so that a
damaged file leads to an error and never to another result. `runfile` has the details.

Writes are handed to the operating system after each model call, so that a killed process loses nothing. They are not
forced to the disk: a power cut can lose the last moments, but never breaks the file.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, get_args

import numpy as np

from parsimon.core.grid import first_grid
from parsimon.core.model import Traffic
from parsimon.core.types import Corner, Ended, Image, ImageSource, JournalEntry, Outcome, Picture, Point
from parsimon.errors import InputError, StoreError, first_line, quote
from parsimon.results.result import Verification
from parsimon.runs import packing, runfile
from parsimon.runs.packing import join_entries
from parsimon.runs.runfile import NUMBER_OF_FACTS, add_row, checksum, is_written, snapshot, transaction

__all__ = ["Store", "is_written"]

_COMPACT_AFTER = 64 * 2**20  # bytes of journal
_ROW_NAMES = {
    "about": lambda row: f"the fact {quote(row[0])}",
    "outcomes": lambda row: f"the outcome of {row[0]} on image {row[1]}",
    "journal": lambda row: f"journal entry {row[0]} of {row[1]}",
}
_Decoded = TypeVar("_Decoded")
RUN_FILE = "run.sqlite"


class Progress(NamedTuple):
    """Counts of one attack."""

    queries: int = 0  # charged so far, also for unfinished images
    outcomes: int = 0  # stored rows
    journal: int = 0  # stored rows


class Store:
    """A run file, open for one writer at a time; others can read it meanwhile."""

    def __init__(self, folder: Path, images: ImageSource, *, write: bool = False) -> None:
        """Open the file of a run. `images` are those of the run: points are stored relative to them."""
        self._path = folder / RUN_FILE
        self._images = images
        self._journal_bytes = 0  # since the last compaction
        if not write and not self._path.exists():
            raise StoreError(f"{folder} holds no run: there is no {self._path.name} in it")
        with ExitStack() as stack:
            if write:
                stack.enter_context(closing(runfile.lock_folder(folder)))
            with self._errors():
                self._database = (runfile.open_for_writing if write else runfile.open_for_reading)(self._path)
            stack.callback(runfile.close_after_writing if write else sqlite3.Connection.close, self._database)
            if write:
                self._verify_rows()
                with self._errors():
                    runfile.begin_writing(self._database)
            self._resources = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def verify(self) -> None:
        """Read the whole file and raise an error if any of it is damaged. Opening a file for writing verifies it."""
        with self._errors():
            runfile.check_pages(self._database)
        self._verify_rows()

    def _verify_rows(self) -> None:
        """Verify all rows, also those that nobody reads: a fact may be missing because its name is damaged."""
        with self._errors(), snapshot(self._database):
            counts = {table: sum(1 for _ in self._rows(table)) for table in runfile.COLUMNS}
            if counts["about"] and self.get_fact(NUMBER_OF_FACTS) != counts["about"] - 1:
                raise sqlite3.DatabaseError("facts of the run are missing")

    def _rows(self, table: str, condition: str = "", *values: Any) -> Generator[tuple[Any, ...], None, None]:
        """Yield rows of a table without their checksums, which are verified."""
        with closing(self._database.execute(f"{runfile.select(table)} {condition}", values)) as rows:
            for *columns, seal in rows:
                row = tuple(columns)
                if checksum(row) != seal:
                    raise sqlite3.DatabaseError(f"{_ROW_NAMES[table](row)} (its checksum is wrong)")
                yield row

    # --- facts ------------------------------------------------------------------------------------------------------

    def set_fact(self, key: str, value: Any) -> None:
        """Write a fact."""
        with self._errors(), transaction(self._database):
            self._set_fact(key, value)

    def check_fact(self, key: str, value: Any) -> None:
        """Write a fact about the inputs of the run, or refuse one that has changed."""
        before = self.get_fact(key)
        if before is None:
            self.set_fact(key, value)
        elif before != value:
            raise InputError(
                f"this run was begun with another {key}: its model or its data have changed since, so continuing would "
                "mix results. Start a new run, or restore the model and the data."
            )

    def get_fact(self, key: str) -> Any:
        """Return the fact, or None."""
        return self._decode_fact(key, lambda fact: fact)

    def _decode_fact(self, key: str, decode: Callable[[Any], _Decoded]) -> _Decoded | None:
        with self._errors():
            rows = list(self._rows("about", "WHERE key = ?", key))
            with _decoding(f"the fact {quote(key)}"):
                fact = json.loads(rows[0][1]) if rows else None
                return None if fact is None else decode(fact)

    def _set_fact(self, key: str, value: Any) -> None:
        row = key, json.dumps(value)
        changed = self._database.execute(
            "UPDATE about SET value = ?, checksum = ? WHERE key = ?", (row[1], checksum(row), key)
        )
        if changed.rowcount:
            return
        add_row(self._database, "about", row)
        if key != NUMBER_OF_FACTS:
            others = "SELECT COUNT(*) FROM about WHERE key != ?"
            self._set_fact(NUMBER_OF_FACTS, self._database.execute(others, (NUMBER_OF_FACTS,)).fetchone()[0])

    def queries(self, attack: str) -> int:
        """Return how many queries were charged so far, also for unfinished images."""
        return self._progress(attack).queries

    def _progress(self, attack: str) -> Progress:
        return self._decode_fact(f"progress {attack}", lambda fact: Progress(*map(_count, fact))) or Progress()

    def count(self, attack: str, traffic: Traffic | None) -> None:
        """Store the traffic so far, if the model is remote. It is stored before the responses, which may be lost."""
        if traffic is not None:
            self.set_fact(f"traffic {attack}", asdict(traffic))

    def traffic(self, attack: str) -> Traffic | None:
        """Return the traffic of a remote model, or None."""
        return self._decode_fact(
            f"traffic {attack}", lambda fact: Traffic(_count(fact["attempted"]), _count(fact["answered"]))
        )

    def verification(self, attack: str) -> Verification | None:
        """Return the result of querying the successes again, or None."""
        return self._decode_fact(
            f"verified {attack}", lambda fact: Verification(_count(fact["queried"]), tuple(map(_count, fact["failed"])))
        )

    # --- finished and unfinished images -----------------------------------------------------------------------------

    def save(
        self, attack: str, outcomes: Sequence[Outcome], entries: Sequence[JournalEntry], queries: int | None = None
    ) -> None:
        """Write the outcomes and journal entries of one model call at once, with the queries charged so far."""
        rows = [self._to_row(attack, outcome) for outcome in outcomes]
        packed = packing.pack_entries(entries) if entries else None
        with self._errors(), transaction(self._database):
            before = self._progress(attack)
            # Never fewer than before: a resumed run counts replayed queries again.
            charged = max(queries or 0, before.queries)
            progress = Progress(charged, before.outcomes + len(rows), before.journal + (packed is not None))
            self._set_fact(f"progress {attack}", progress)
            for row in rows:
                add_row(self._database, "outcomes", row)
            if packed is not None:
                self._add_entry(attack, packed)
        if self._journal_bytes > _COMPACT_AFTER:
            self._compact(attack)

    def outcomes(self, attack: str) -> dict[int, Outcome]:
        """Return the outcomes of the finished images."""
        with self._errors(), snapshot(self._database):
            with closing(self._rows("outcomes", "WHERE attack = ? ORDER BY image", attack)) as rows:
                outcomes = {outcome.index: outcome for outcome in map(self._to_outcome, rows)}
            _check_number(len(outcomes), self._progress(attack).outcomes, f"outcomes of {attack}")
        return outcomes

    def ended_after(self, last: int) -> list[tuple[int, str, Outcome]]:
        """Return the outcomes of all attacks after row `last` in their order, each with its row number and attack.

        Rows are numbered from 1. Earlier rows are not read.
        """
        after = "WHERE rowid > ? ORDER BY rowid"
        with self._errors(), snapshot(self._database):
            numbers = [
                number
                for (number,) in self._database.execute(f"SELECT rowid FROM outcomes NOT INDEXED {after}", (last,))
            ]
            rows = list(self._rows("outcomes", after, last))
            names = [key.removeprefix("progress ") for key, _ in self._rows("about", "WHERE key LIKE 'progress %'")]
            stored = sum(self._progress(name).outcomes for name in names)
            if numbers != list(range(last + 1, stored + 1)):
                raise sqlite3.DatabaseError(f"{last + len(rows):,} of {stored:,} outcomes are there")
            return [(number, row[0], self._to_outcome(row)) for number, row in zip(numbers, rows, strict=True)]

    def journal(self, attack: str) -> dict[int, JournalEntry]:
        """Return the journal of each unfinished image."""
        entries: dict[int, list[JournalEntry]] = defaultdict(list)
        number = 0
        with self._errors(), snapshot(self._database):
            images = self._database.execute("SELECT image FROM outcomes NOT INDEXED WHERE attack = ?", (attack,))
            finished = {image for (image,) in images}
            with closing(self._rows("journal", "WHERE attack = ? ORDER BY call", attack)) as rows:
                for row in rows:
                    number += 1
                    with _decoding(_ROW_NAMES["journal"](row)):
                        for entry in packing.unpack_entries(row[2]):
                            if entry.image not in finished:
                                entries[entry.image].append(entry)
            _check_number(number, self._progress(attack).journal, f"journal entries of {attack}")
        return {image: join_entries(parts) for image, parts in entries.items()}

    def finish(self, attack: str) -> None:
        """Delete the journal of a finished attack."""
        self._replace_journal(attack, None)
        with self._errors():
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _compact(self, attack: str) -> None:
        """Delete finished images from the journal, so that its size does not grow with the run."""
        self._replace_journal(attack, packing.pack_entries(list(self.journal(attack).values())))

    def _replace_journal(self, attack: str, packed: bytes | None) -> None:
        with self._errors(), transaction(self._database):
            self._database.execute("DELETE FROM journal WHERE attack = ?", (attack,))
            progress = self._progress(attack)._replace(journal=int(packed is not None))
            self._set_fact(f"progress {attack}", progress)
            self._journal_bytes = 0
            if packed is not None:
                self._add_entry(attack, packed)

    def _add_entry(self, attack: str, packed: bytes) -> None:
        (call,) = self._database.execute("SELECT COALESCE(MAX(call), 0) + 1 FROM journal").fetchone()
        add_row(self._database, "journal", (call, attack, packed))
        self._journal_bytes += len(packed)

    # --- rows of outcomes -------------------------------------------------------------------------------------------

    def _to_row(self, attack: str, outcome: Outcome) -> tuple[Any, ...]:
        """Return an outcome in the order of `OUTCOME_COLUMNS`."""
        grid = packed = None
        match outcome.point:
            case Corner(cut, bits):
                grid, packed = f"{cut.noise[0]} {cut.noise[1]} {cut.block}", packing.pack_bits(bits)
            case Picture() as picture:
                packed = packing.pack_difference(picture.pixels, self._original(outcome.index))
        confidence = None if outcome.confidence is None else float(outcome.confidence)
        return (
            *(attack, outcome.index, int(outcome.success), outcome.queries, outcome.ended),
            *(outcome.uncharged, outcome.outside, outcome.gradients, outcome.predicted, grid, packed),
            *(confidence, outcome.out_of_range, int(outcome.flat), outcome.extra, packing.pack_radii(outcome.radii)),
            *(outcome.draws, outcome.errors, outcome.flagged, outcome.first_flag),
        )

    def _to_outcome(self, row: tuple[Any, ...]) -> Outcome:
        columns = dict(zip(runfile.OUTCOME_COLUMNS, row, strict=True))
        index, confidence = columns["image"], columns["confidence"]
        counted = ("queries", "uncharged", "outside", "gradients", "out_of_range", "extra", "draws", "errors")
        perhaps = ("predicted", "flagged", "first_flag")
        with _decoding(_ROW_NAMES["outcomes"](row)):
            if columns["ended"] not in get_args(Ended):
                raise ValueError("it ended in no known way")
            counts: dict[str, Any] = {name: _count(columns[name]) for name in counted}
            counts |= {name: None if columns[name] is None else _count(columns[name]) for name in perhaps}
            return Outcome(
                index=_count(index),
                success=bool(_count(columns["success"])),
                ended=columns["ended"],
                point=self._unpack_point(index, columns["grid"], columns["point"]),
                confidence=None if confidence is None else float(confidence),
                flat=bool(_count(columns["flat"])),
                radii=packing.unpack_radii(columns["radii"]),
                **counts,
            )

    def _unpack_point(self, index: int, grid: str | None, packed: bytes | None) -> Point | None:
        if packed is None:
            return None
        if grid is None:
            original = self._original(index)
            return Picture(original.shape, packing.unpack_difference(packed, original))
        rows, columns, block = map(int, grid.split())
        cut = first_grid(self._shape, block, (rows, columns))
        return Corner(cut, packing.unpack_bits(packed, cut.count))

    @cached_property
    def _shape(self) -> tuple[int, int, int]:
        """The shape of all images. A corner needs no more, so its own image, which may be remote, is not read."""
        channels, height, width = self._original(0).shape
        return channels, height, width

    def _original(self, index: int) -> Image:
        return np.asarray(self._images[index], np.float32)

    # --- errors -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into sentences."""
        try:
            yield
        except sqlite3.Error as error:
            refusal = runfile.refusal(self._path, error)
            raise (StoreError(refusal) if refusal else self.damaged(str(error))) from error
        except UnicodeDecodeError as error:  # in SQLite's own message, which quotes the damaged text
            raise self.damaged("its schema is malformed") from error

    def damaged(self, what: str) -> StoreError:
        """Return an error that says what is damaged, and what can still be used."""
        return StoreError(runfile.damage(self._path, what))


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{quote(value)} is not a count")
    return value


def _check_number(found: int, stored: int, what: str) -> None:
    if found != stored:
        raise sqlite3.DatabaseError(f"{found:,} of {stored:,} {what} are there")


@contextmanager
def _decoding(what: str) -> Iterator[None]:
    """Name the damaged part if its content is not valid."""
    try:
        yield
    except (TypeError, ValueError, LookupError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"{what} ({first_line(error)})") from error
