"""Lists in terminals of any width: names may be folded, but nothing is cut off."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

import pytest

from parsimon.attacks import ATTACKS
from parsimon.catalogue.entries import entries
from parsimon.cli import output
from parsimon.cli.commands import command
from parsimon.experiments import exhibits

LISTS: dict[str, Iterable[str]] = {"zoo": entries(), "reproduce": exhibits(), "attacks": ATTACKS}


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
