"""Runs of version 0.2 can be read, and are upgraded when they are opened for writing."""

from __future__ import annotations

import csv
import shutil
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsimon import runs
from parsimon.errors import StoreError
from parsimon.report.export import write_results
from parsimon.runs import runfile
from parsimon.runs.store import Store
from stored_runs import OLD

ATTACKS = ("Square", "Bandits")


@pytest.fixture(params=["finished", "interrupted"])
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "old"
    shutil.copytree(OLD, place)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    return place / str(request.param)


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "run.sqlite")) as database:
        return database.execute(query).fetchall()


def images() -> Any:
    with np.load(OLD / "data.npz") as arrays:
        return arrays["images"]


def upgrade(folder: Path) -> None:
    with Store(folder, images(), write=True):
        pass


def exported(folder: Path, path: Path) -> list[dict[str, str]]:
    write_results(runs.load(folder).results, path)
    return list(csv.DictReader(path.read_text().splitlines()))


def losses(folder: Path) -> dict[tuple[str, int], list[float]]:
    """Return the losses in the journal of a file of format 3, by attack and image."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for attack, packed in rows(folder, "SELECT attack, told FROM journal ORDER BY call"):
        heads = np.frombuffer(packed, "<i8", 4 + 5 * int(np.frombuffer(packed, "<i8", 1)[0]))[4:].reshape(-1, 5)
        at = 32 + heads.nbytes
        for image, length, *_ in heads.tolist():
            found[attack, image] += np.frombuffer(packed, "<f8", length, at).tolist()
            at += 8 * length
    return found


def test_an_old_run_is_read_as_the_old_version_reads_it(old: Path, tmp_path: Path) -> None:
    before = (old / "run.sqlite").read_bytes()
    expected = list(csv.DictReader((old / "results.csv").read_text().splitlines()))
    for _ in ("as it is", "upgraded"):
        found = exported(old, tmp_path / "now.csv")
        assert [{key: row[key] for key in expected[0]} for row in found] == expected
        assert {row["out_of_range"] for row in found} == {"0"}
        if rows(old, "PRAGMA user_version") == [(3,)]:
            assert (old / "run.sqlite").read_bytes() == before
        upgrade(old)
    assert rows(old, "PRAGMA user_version") == [(4,)]


def test_the_upgrade_keeps_every_outcome_and_every_loss(old: Path) -> None:
    outcomes, journal = rows(old, "SELECT rowid, * FROM outcomes"), losses(old)
    queries = dict(rows(old, "SELECT key, CAST(value AS INTEGER) FROM about WHERE key LIKE 'queries %'"))
    upgrade(old)
    now = rows(old, "SELECT rowid, * FROM outcomes")
    assert [row[:13] for row in now] == outcomes
    ended = {(row[1], row[2]) for row in now}
    with Store(old, images()) as store:
        entries = {(name, image): each for name in ATTACKS for image, each in store.journal(name).items()}
        assert {name: store.queries(name) for name in ATTACKS} == {name: queries[f"queries {name}"] for name in ATTACKS}
    assert {key: each.loss.tolist() for key, each in entries.items()} == {
        key: found for key, found in journal.items() if key not in ended
    }
    assert bool(entries) == (old.name == "interrupted")
    assert {each.out_of_range for each in entries.values()} <= {0}


def test_an_interrupted_upgrade_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {table: rows(old, f"SELECT * FROM {table}") for table in ("about", "outcomes", "journal")}

    def full(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runfile, "checksum", full)
        with pytest.raises(KeyboardInterrupt):
            upgrade(old)
    assert rows(old, "PRAGMA user_version") == [(3,)]
    assert {table: rows(old, f"SELECT * FROM {table}") for table in tables} == tables
    assert runs.load(old).unfinished == (0 if old.name == "finished" else 5)


def test_an_upgraded_run_notices_a_changed_row(old: Path) -> None:
    upgrade(old)
    with closing(sqlite3.connect(old / "run.sqlite")) as database, database:
        database.execute("UPDATE outcomes SET queries = queries + 1 WHERE rowid = 5")
    with pytest.raises(StoreError, match=r"is damaged: the outcome of \w+ on image \d \(its checksum is wrong\)"):
        runs.load(old)


def test_an_old_run_is_resumed_to_the_results_of_the_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "old"
    shutil.copytree(OLD, place)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    resumed = runs.resume(Path("interrupted"), progress=False)
    assert resumed.unfinished == 0
    whole = runs.load(Path("finished"))
    for name in ATTACKS:
        # Version 0.2 did not count pixels outside [0, 1].
        outcomes = [replace(outcome, out_of_range=0) for outcome in resumed.results[name].outcomes]
        assert outcomes == list(whole.results[name].outcomes)
        assert resumed.results[name].threat == whole.results[name].threat
        verification = resumed.results[name].verification
        assert verification is not None
        assert verification.queried == resumed.results[name].summary.successes
        assert not verification.failed
    assert runs.load(Path("interrupted")).results["Square"].threat.rounding == "nearest"
