"""Runs as TensorBoard and Weights & Biases are told of them, read back with their own readers."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from command import USERS_MODULE, coloured_images, run
from parsimon import runs
from parsimon.errors import InputError
from parsimon.results.statistics import curve
from parsimon.results.table import Table
from parsimon.runs.config import RunConfig
from parsimon.tracking import Tracking, open_tracker, tracking

OPTIONS = ["--model", "mine:function", "--data", "data.npz", "--eps", "0.04", "--budget", "40", "--images", "all"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    images, labels = coloured_images(20)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    (tmp_path / "mine.py").write_text(USERS_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


class Broken:
    """A tool that fails at everything."""

    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        raise RuntimeError(f"no {name} today")


class Kept:
    """A tool that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def progress(self, *told: Any) -> None:
        self.told.append(("progress", *told))

    def curve(self, *told: Any) -> None:
        self.told.append(("curve", *told))

    def table(self, name: str, table: Table) -> None:
        self.told.append(("table", name, table.title))

    def picture(self, *told: Any) -> None:
        self.told.append(("picture", *told))

    def close(self) -> None:
        self.told.append(("close",))


def test_a_tool_that_fails_is_warned_of_once_and_harms_nothing(place: Path) -> None:
    data = {"model": "mine:function", "data": "data.npz", "images": "all", "eps": "0.04"}
    spec = RunConfig.of({"attacks": ["random", "square"], "budget": 40, **data})
    sys.path.insert(0, str(place))
    try:
        undisturbed = runs.run(spec, place / "plain")
        broken, kept = Broken(), Kept()
        told = Tracking({"broken": broken, "kept": kept})
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = runs.run(spec, place / "tracked", watch=told.step)
            told.end(found, None)
            told.close()
    finally:
        sys.path.remove(str(place))
    (once,) = warned
    assert str(once.message) == "broken no longer tracks this run: RuntimeError: no progress today"
    assert broken.asked == 1
    assert str(found) == str(undisturbed)
    for name, result in found.results.items():
        live = [each[2:] for each in kept.told if each[:2] == ("progress", name)]
        queries, values = live[-1]
        assert queries == int(result.queries.sum())
        assert values == {"success so far": result.summary.success_rate, "images ended": 20}
        ((at, shares),) = [each[2:] for each in kept.told if each[:2] == ("curve", name)]
        expected = curve(result.outcomes, 40)
        assert np.array_equal(expected.at(at), shares)
        assert (at[0], at[-1]) == (0, 40)
        pictures = [each[2:] for each in kept.told if each[:2] == ("picture", name)]
        assert len(pictures) == min(24, result.summary.successes)
        assert all(pixels.shape == (8, 24, 3) for pixels, _ in pictures)
    assert kept.told[-1] == ("close",)


def test_an_unknown_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no tracker 'excel': choose one of tensorboard\[:FOLDER\], wandb"):
        open_tracker("excel:x", tmp_path, {})
    ran = run(tmp_path, "run", "--track", "excel")
    assert ran.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named_with_its_extra_before_anything_is_asked(tmp_path: Path) -> None:
    for tool, package in (("tensorboard", "tensorboardX"), ("wandb", "wandb")):
        code = f"import sys; sys.modules[{package!r}] = None; from parsimon.cli import main; main()"
        ran = run(tmp_path, "run", "--track", tool, command=[sys.executable, "-c", code])
        assert ran.returncode == 2
        assert f"this needs {package}, which is not installed: pip install 'parsimon[{tool}]'" in ran.stderr
    assert list(tmp_path.iterdir()) == []


# --- the tools themselves -------------------------------------------------------------------------------------------


@pytest.mark.tracking
def test_tensorboard_reads_curves_tables_and_gallery(place: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    ran = run(place, "compare", "parsimonious", "square", *OPTIONS, "--out", "out", "--track", "tensorboard")
    assert ran.returncode == 0, ran.stderr
    events = accumulator.EventAccumulator(
        str(place / "out" / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "tensors": 0}
    )
    events.Reload()
    for name, result in runs.load(place / "out").results.items():
        found = events.Scalars(f"success_within_queries/{name}")
        expected = curve(result.outcomes, 40)
        assert [each.value for each in found] == pytest.approx(expected.at([each.step for each in found]).tolist())
        assert found[-1].step == 40
        live = events.Scalars(f"success_so_far/{name}")
        assert (live[-1].step, live[-1].value) == (int(result.queries.sum()), pytest.approx(found[-1].value))
        assert events.Scalars(f"images_ended/{name}")[-1].value == 20
        tags = [tag for tag in events.Tags()["images"] if tag.startswith(f"{name}/")]
        assert len(tags) == min(24, result.summary.successes) > 0
        shown = np.asarray(Pillow.open(BytesIO(events.Images(tags[0])[0].encoded_image_string)))
        assert shown.shape == (8, 24, 3)
    text = events.Tensors("results/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text == runs.load(place / "out").table().markdown()
    assert "budget = 40" in events.Tensors("spec/text_summary")[0].tensor_proto.string_val[0].decode()


@pytest.mark.tracking
def test_tensorboard_goes_on_with_a_resumed_run_in_a_folder_of_ones_choice(place: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert run(place, "run", *OPTIONS, "--out", "out").returncode == 0
    ran = run(place, "resume", "out", "--track", "tensorboard:logs")
    assert ran.returncode == 0, ran.stderr
    events = accumulator.EventAccumulator(str(place / "logs"))
    events.Reload()
    assert "success_within_queries/Thrift" in events.Tags()["scalars"]


def wandb_records(content: bytes) -> Iterator[bytes]:
    """The records of an offline run's file, for which the package brings no reader of its own any more.

    It is LevelDB's log after a head of 7 bytes: blocks of 32 KiB, in which each part of a record has a head: a
    checksum, its length, and whether it is a whole record (1), or the first (2), a middle (3) or the last part (4).
    """
    assert content[:4] == b":W&B"
    at, parts = 7, b""
    while at < len(content):
        if 32768 - at % 32768 < 7:  # too little for another head
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        assert kind in (1, 2, 3, 4)
        parts = (b"" if kind in (1, 2) else parts) + content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield parts


@pytest.mark.tracking
def test_wandb_reads_curves_tables_and_gallery_offline(place: Path) -> None:
    wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    settings = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    command = [sys.executable, "-m", "parsimon", "run", *OPTIONS, "--out", "out", "--track", "wandb:mine", "--json"]
    ran = subprocess.run(command, cwd=place, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["run"] == "out"  # nothing else was printed there
    (folder,) = (place / "out" / "wandb").glob("offline-run-*")
    (file,) = folder.glob("*.wandb")
    records = []
    for data in wandb_records(file.read_bytes()):
        records.append(wandb_internal_pb2.Record())
        records[-1].ParseFromString(data)
    (begun,) = [each.run for each in records if each.HasField("run")][:1]
    assert begun.project == "mine"
    assert {item.key: json.loads(item.value_json) for item in begun.config.update}["budget"] == 40
    logged: dict[str, list[Any]] = {}
    for record in records:
        for item in record.history.item:
            key = item.key or "/".join(item.nested_key)
            logged.setdefault(key, []).append(json.loads(item.value_json))
    (result,) = runs.load(place / "out").results.values()
    assert logged["Thrift/queries"][-1] == int(result.queries.sum())
    assert logged["Thrift/success so far"][-1] == pytest.approx(result.summary.success_rate)
    files = {path.name: path for path in (folder / "files").rglob("*") if path.is_file()}
    tables = [json.loads(path.read_text()) for name, path in files.items() if name.endswith(".table.json")]
    expected = curve(result.outcomes, 40)
    (curved,) = [table["data"] for table in tables if table["columns"] == ["queries", "success"]]
    assert [share for _, share in curved] == pytest.approx(expected.at([at for at, _ in curved]).tolist())
    (shown,) = [table for table in tables if table["columns"] == list(runs.load(place / "out").table().headers)]
    assert shown["data"][0][0] == "Thrift"
    pictures = [path for name, path in files.items() if name.endswith(".png")]
    assert len(pictures) == min(24, result.summary.successes) > 0
    with Pillow.open(pictures[0]) as picture:
        assert picture.size == (24, 8)


@pytest.mark.tracking
def test_nothing_is_left_by_a_run_that_is_refused(place: Path) -> None:
    before = sorted(path.name for path in place.iterdir())
    for tool in ("tensorboard", "wandb"):
        with tracking([tool], place / "out", {}):
            pass
        ran = run(place, "run", "--model", "mine:broken", "--data", "data.npz", "--out", "out", "--track", tool)
        assert ran.returncode == 2
    assert sorted(path.name for path in place.iterdir() if path.name != "__pycache__") == before
