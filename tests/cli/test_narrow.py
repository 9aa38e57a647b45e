"""Lists in terminals of any width: names may be folded, but nothing is cut off."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from parsimon.attacks import ATTACKS
from parsimon.catalogue.entries import entries
from parsimon.cli import output
from parsimon.cli.commands import command
from parsimon.defences import DEFENCES
from parsimon.experiments import exhibits


def presets() -> list[str]:
    """The presets of all lists, some of which are longer than a column."""
    of_attacks = [preset for attack in ATTACKS.values() for preset in attack.presets]
    return of_attacks + [preset for defence in DEFENCES.values() for preset in defence.presets]


LISTS: dict[str, Iterable[str]] = {"zoo": entries(), "reproduce": exhibits(), "attacks": ATTACKS, "defences": DEFENCES}


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("name", LISTS)
def test_a_list_names_everything_at_the_left(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "argv", ["parsimon", name])
    assert output.run(command) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    left = "".join(re.match(r"\S*", line)[0] for line in text.splitlines())  # type: ignore[index]
    assert all(each in left for each in LISTS[name])


@pytest.mark.parametrize("width", range(40, 100, 4))
def test_no_word_of_a_list_is_broken(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = ""
    for name in ("attacks", "defences"):
        monkeypatch.setattr(sys, "argv", ["parsimon", name])
        assert output.run(command) == 0
        text += capsys.readouterr().out
    words = {word.strip(",") for word in text.split()}
    assert words >= {*presets(), *ATTACKS, *DEFENCES, "Andriushchenko", "probabilities"}
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("columns", ["60", None])
def test_headlines_are_wrapped_where_lines_end(
    columns: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe of unknown width they stay whole, for whoever looks for one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "argv", ["parsimon", "evaluate", "--images", "4", "--budget", "3", "--out", "it"])
    assert output.run(command) == 0
    headline, _, _ = capsys.readouterr().out.partition("\n\n")
    lines = headline.splitlines()
    assert (max(map(len, lines)) <= 60, len(lines) == 2) == ((True, False) if columns else (False, True))
    assert "An upper bound: 4 images, Thrift, Square, at most 3 queries per image and attack" in " ".join(lines)
