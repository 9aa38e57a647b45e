"""Results as files: what is written is what is read, in both formats."""

from __future__ import annotations

import csv
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import parsimon
from parsimon.errors import InputError, MissingExtraError
from parsimon.report.export import write_results
from parsimon.results.result import Result
from small_model import IMAGES, LABELS, linear

COLUMNS = [
    "attack",
    "image",
    "label",
    "clean_confidence",
    "success",
    "queries",
    "uncharged",
    "outside",
    "gradients",
    "ended",
    "predicted",
    "confidence",
    "out_of_range",
    "verified",
    "extra",
    "radius",
    "draws",
    "errors",
    "flagged",
    "first_flag",
    "defence",
]


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    attacks = ["square", "bandits:cifar10", "rays"]
    found = dict(parsimon.compare(linear, IMAGES, LABELS, 0.05, attacks, budget=40, until_budget=True).results)
    defence = ["noise,sigma=0.1", "blacklight,window=4"]
    settings: Any = {"budget": 40, "defence": defence, "stochastic": True, "draws": 9}
    return {**found, "Drawn": parsimon.attack(linear, IMAGES, LABELS, 0.05, attack="square", **settings)}


def expected(results: dict[str, Result]) -> list[dict[str, Any]]:
    return [
        {
            "attack": name,
            "image": each.index,
            "label": int(result.labels[each.index]),
            "clean_confidence": result.clean.confidence_of(each.index),
            "success": each.success,
            "queries": each.queries,
            "uncharged": each.uncharged,
            "outside": each.outside,
            "gradients": each.gradients,
            "ended": each.ended,
            "predicted": each.predicted,
            "confidence": each.confidence,
            "out_of_range": each.out_of_range,
            "verified": True if each.success and name != "Drawn" else None,
            "extra": each.extra,
            "radius": each.radius,
            "draws": each.draws,
            "errors": each.errors,
            "flagged": each.flagged,
            "first_flag": each.first_flag,
            "defence": "noise,sigma=0.1 + blacklight,window=4" if name == "Drawn" else "",
        }
        for name, result in results.items()
        for each in result.outcomes
    ]


def read_csv(path: Path) -> list[dict[str, Any]]:
    def value(column: str, text: str) -> Any:
        if column in ("attack", "ended", "defence"):
            return text
        if column.endswith(("confidence", "radius")):
            return float(text) if text else None
        return None if text == "" else bool(int(text)) if column in ("success", "verified") else int(text)

    with path.open(newline="") as file:
        return [{column: value(column, text) for column, text in row.items()} for row in csv.DictReader(file)]


def test_the_run_has_something_to_tell(results: dict[str, Result]) -> None:
    rows = expected(results)
    assert {row["success"] for row in rows} == {True, False}
    assert {row["predicted"] is None for row in rows} == {True, False}
    scored = [row for row in rows if row["attack"] not in ("RayS", "Drawn")]
    assert all((row["confidence"] is None) == (row["predicted"] is None) for row in scored)
    assert {row["draws"] for row in rows} == {0, 9}
    assert any(row["errors"] for row in rows)
    assert {row["flagged"] is None for row in rows} == {row["first_flag"] is None for row in rows} == {True, False}
    assert all(row["clean_confidence"] > 0.1 for row in rows)  # there are ten classes
    assert any(row["uncharged"] for row in rows)
    assert any(row["extra"] for row in rows)
    assert {row["radius"] is None for row in rows} == {True, False}


def test_csv_reads_back_equal(results: dict[str, Result], tmp_path: Path) -> None:
    write_results(results, tmp_path / "results.csv")
    assert read_csv(tmp_path / "results.csv") == expected(results)
    assert (tmp_path / "results.csv").read_text().splitlines()[0] == ",".join(COLUMNS)


def test_parquet_reads_back_equal_and_typed(results: dict[str, Result], tmp_path: Path) -> None:
    write_results(results, str(tmp_path / "results.PARQUET"))
    table = import_module("pyarrow.parquet").read_table(tmp_path / "results.PARQUET")
    assert table.to_pylist() == expected(results)
    kinds = ["string", "int64", "int64", "double", "bool", *["int64"] * 4, "string", "int64", "double", "int64", "bool"]
    kinds += ["int64", "double", *["int64"] * 4, "string"]
    assert [(field.name, str(field.type)) for field in table.schema] == list(zip(COLUMNS, kinds, strict=True))
    assert [field.name for field in table.schema if field.nullable] == [
        "clean_confidence",
        "predicted",
        "confidence",
        "verified",
        "radius",
        "flagged",
        "first_flag",
    ]


@pytest.mark.parametrize("name", ["results.csv", "results.parquet"])
def test_no_results_are_a_file_with_the_same_columns(name: str, tmp_path: Path) -> None:
    write_results({}, tmp_path / name)
    if name.endswith("csv"):
        assert read_csv(tmp_path / name) == []
        assert (tmp_path / name).read_text().strip() == ",".join(COLUMNS)
    else:
        table = import_module("pyarrow.parquet").read_table(tmp_path / name)
        assert (table.num_rows, table.column_names) == (0, COLUMNS)


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_name_that_a_spreadsheet_would_compute_is_written_as_text(name: str, tmp_path: Path) -> None:
    results = parsimon.compare(linear, IMAGES, LABELS, 0.05, {name: "square"}, budget=5).results
    write_results(results, tmp_path / "results.csv")
    rows = read_csv(tmp_path / "results.csv")
    assert rows == [{**row, "attack": f"'{name}"} for row in expected(dict(results))]
    write_results(results, tmp_path / "results.parquet")  # which has no formulas
    assert import_module("pyarrow.parquet").read_table(tmp_path / "results.parquet")["attack"][0].as_py() == name


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a\nb", "a=b", "'=1", "\udcff", "a\0b"])
def test_any_other_name_is_written_as_it_is(name: str, tmp_path: Path) -> None:
    results = parsimon.compare(linear, IMAGES, LABELS, 0.05, {name: "square"}, budget=5).results
    write_results(results, tmp_path / "results.csv")
    printable = name.encode(errors="backslashreplace").decode()
    assert {row["attack"] for row in read_csv(tmp_path / "results.csv")} == {printable}


def test_other_endings_are_refused(results: dict[str, Result], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.csv or \.parquet; got 'results\.xlsx'"):
        write_results(results, tmp_path / "results.xlsx")


def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, results: dict[str, Result], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as Python itself marks what cannot be imported
    with pytest.raises(MissingExtraError) as caught:
        write_results(results, tmp_path / "results.parquet")
    assert str(caught.value) == "this needs pyarrow, which is not installed: pip install 'parsimon[parquet]'"
    write_results(results, tmp_path / "results.csv")
