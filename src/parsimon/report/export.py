"""Outcomes as CSV or Parquet, one row per attack and image."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from parsimon.errors import InputError, quote, require
from parsimon.results.result import Result

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # first characters of a spreadsheet formula


class _Row(NamedTuple):
    """The columns, in order. The top of parsimon.core.types explains the counts."""

    attack: str
    image: int
    label: int
    # Before the attack, the model's probability of the label; of a random model, the share of draws with its class.
    clean_confidence: float | None  # empty if the model returns labels
    success: bool
    queries: int
    uncharged: int
    outside: int
    gradients: int
    ended: str
    predicted: int | None  # empty if the model was not fooled
    confidence: float | None  # probability of the predicted class
    out_of_range: int
    verified: bool | None  # whether the success held on its second query; empty without one
    extra: int  # charged queries after the success
    radius: float | None  # distance of the closest adversarial image that a label-only attack found
    draws: int  # fresh draws of the point returned, on a random model
    errors: int  # those of them in which the model erred
    flagged: int | None  # charged queries that a detector flagged; empty without one
    first_flag: int | None  # number of the first of them
    defence: str  # in front of the model, joined by " + "; empty without one


def write_results(results: Mapping[str, Result], path: str | Path) -> None:
    """Write one row per attack and attacked image, as CSV or Parquet by the suffix."""
    path = Path(path)
    writers = {".csv": _write_csv, ".parquet": _write_parquet}
    if path.suffix.lower() not in writers:
        raise InputError(f"results are written as {' or '.join(writers)}; got {quote(path.name)}: choose one of these")
    writers[path.suffix.lower()](results, path)


def _rows(results: Mapping[str, Result]) -> Iterator[_Row]:
    for name, result in results.items():
        for each in result.outcomes:
            yield _Row(
                attack=name,
                image=each.index,
                label=int(result.labels[each.index]),
                clean_confidence=result.clean.confidence_of(each.index),
                success=each.success,
                queries=each.queries,
                uncharged=each.uncharged,
                outside=each.outside,
                gradients=each.gradients,
                ended=each.ended,
                predicted=each.predicted,
                confidence=each.confidence,
                out_of_range=each.out_of_range,
                verified=result.verified(each),
                extra=each.extra,
                radius=each.radius,
                draws=each.draws,
                errors=each.errors,
                flagged=each.flagged,
                first_flag=each.first_flag,
                defence=" + ".join(result.defence),
            )


def _write_csv(results: Mapping[str, Result], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        table = csv.writer(file)  # leaves None empty
        table.writerow(_Row._fields)
        table.writerows([csv_cell(value) for value in row] for row in _rows(results))


def csv_cell(value: object) -> object:
    """Return a value as a cell: a bool as 0 or 1, and text that looks like a formula quoted."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return int(value) if isinstance(value, bool) else value


def _write_parquet(results: Mapping[str, Result], path: Path) -> None:
    arrow = require("pyarrow", "parquet")
    kinds = dict.fromkeys(("attack", "ended", "defence"), arrow.string())
    kinds |= dict.fromkeys(("success", "verified"), arrow.bool_())
    kinds |= dict.fromkeys(("clean_confidence", "confidence", "radius"), arrow.float64())
    nullable = {"clean_confidence", "predicted", "confidence", "verified", "radius", "flagged", "first_flag"}
    schema = arrow.schema(
        [arrow.field(name, kinds.get(name, arrow.int64()), nullable=name in nullable) for name in _Row._fields]
    )
    table = arrow.Table.from_pylist([row._asdict() for row in _rows(results)], schema)
    require("pyarrow.parquet", "parquet").write_table(table, path)
