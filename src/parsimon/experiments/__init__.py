"""The paper's experiments: `exhibits.toml` lists its tables and figures, `runs/` describes their runs.

A run's file is a run configuration, with the paper's results beside each attack. This package imports runs and reports.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any, Literal, NamedTuple

from parsimon.errors import unknown_name
from parsimon.runs.config import RunConfig

Shows = Literal["table", "curves", "examples", "sensitivity", "bands", "grid", "noise", "differences"]


class Published(NamedTuple):
    """The published results of one attack; None if not reported."""

    success: float | None = None  # percent
    mean: float | None = None
    median: float | None = None
    on_nes: float | None = None  # mean over the images that NES also fooled


@dataclass(frozen=True)
class PlannedRun:
    """One run of the paper, at its full protocol or scaled down.

    Attributes:
        name: The name of its file.
        title: The title of its table.
        queries: The estimated number of queries of the full protocol.
        network: The paper's network.
        spec: The run to execute.
        protocol: The paper's run.
        paper: The paper's results for each attack of `spec`, in order.
        reported: Results that the paper quotes from others.
    """

    name: str
    title: str
    queries: int
    network: str
    spec: RunConfig
    protocol: RunConfig
    paper: tuple[Published, ...]
    reported: Mapping[str, Published]


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper."""

    name: str
    title: str
    shows: Shows
    runs: tuple[PlannedRun, ...]
    bars: tuple[float, ...] = ()  # of figure 1, percent

    @property
    def climbs(self) -> bool:
        """Return whether it shows the highest loss instead of successes; such runs are not stored."""
        return self.shows in ("noise", "differences")


def exhibits() -> dict[str, Exhibit]:
    """Return all exhibits by name, in the order of the paper."""
    found = {}
    for name, entry in _read("exhibits.toml").items():
        planned, bars = tuple(map(_planned, entry["runs"])), tuple(entry.get("bars", ()))
        found[name] = Exhibit(name, entry["title"], entry["shows"], planned, bars)
    return found


def exhibit(name: str) -> Exhibit:
    known = exhibits()
    if name not in known:
        raise unknown_name("the paper has no exhibit", name, "It has", known)
    return known[name]


def _planned(name: str) -> PlannedRun:
    entry = _read(f"runs/{name}.toml")
    facts = {key: entry.pop(key) for key in ("title", "queries", "network")}
    reported, sweep = entry.pop("reported", {}), entry.pop("sweep", {})
    attacks: dict[str, dict[str, float]] = entry.pop("attacks", {})
    for attack, settings in sweep.items():
        for values in product(*settings.values()):
            assignments = (f"{key}={value}" for key, value in zip(settings, values, strict=True))
            attacks[",".join([attack, *assignments])] = {}
    spec = RunConfig.of({**entry, "attacks": list(attacks)})
    return PlannedRun(
        name=name,
        **facts,
        spec=spec,
        protocol=spec,
        paper=tuple(Published(**numbers) for numbers in attacks.values()),
        reported={source: Published(**numbers) for source, numbers in reported.items()},
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("parsimon.experiments") / name).read_text(encoding="utf-8"))
