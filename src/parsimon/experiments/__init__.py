"""The paper's experiments: `exhibits.toml` names its tables and figures, `runs/` holds what they are made of.

A run's file is a spec, with what the paper reports of each attack beside the attack.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any, Literal, NamedTuple

from parsimon.errors import InputError
from parsimon.runs.config import RunConfig

Shows = Literal["table", "curves", "examples", "sensitivity", "bands", "grid", "noise", "differences"]


class Published(NamedTuple):
    """What a paper reports of one attack; None where it does not."""

    success: float | None = None  # percent
    mean: float | None = None
    median: float | None = None
    on_nes: float | None = None  # mean, over the images that NES fooled too


@dataclass(frozen=True)
class Planned:
    """One run of the paper, at its full protocol or scaled down.

    Attributes:
        name: That of its file.
        title: What it is about.
        queries: What the full protocol takes, going by the paper's results.
        network: The paper's.
        spec: What is to be run.
        protocol: What the paper ran.
        paper: What it reports of each attack, in the order of the spec's.
        reported: Results that it quotes from others.
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
    runs: tuple[Planned, ...]
    bars: tuple[float, ...] = ()  # of figure 1, in percent

    @property
    def climbs(self) -> bool:
        """Whether it asks how high a search comes, not when it succeeds: then nothing of it is stored."""
        return self.shows in ("noise", "differences")


def exhibits() -> dict[str, Exhibit]:
    """All of them, by name, in the order of the paper."""
    described = _read("exhibits.toml")
    return {
        name: Exhibit(
            name,
            entry["title"],
            entry["shows"],
            tuple(_planned(run) for run in entry["runs"]),
            tuple(entry.get("bars", ())),
        )
        for name, entry in described.items()
    }


def exhibit(name: str) -> Exhibit:
    known = exhibits()
    if name not in known:
        raise InputError(f"the paper has no exhibit {name!r}: choose one of {', '.join(known)}")
    return known[name]


def _planned(name: str) -> Planned:
    entry = _read(f"runs/{name}.toml")
    title, queries, network = (entry.pop(key) for key in ("title", "queries", "network"))
    reported, sweep = entry.pop("reported", {}), entry.pop("sweep", {})
    attacks: dict[str, dict[str, float]] = entry.pop("attacks", {})
    for attack, settings in sweep.items():
        for values in product(*settings.values()):
            assignments = (f"{key}={value}" for key, value in zip(settings, values, strict=True))
            attacks[",".join([attack, *assignments])] = {}
    spec = RunConfig.of({**entry, "attacks": list(attacks)})
    return Planned(
        name,
        title,
        queries,
        network,
        spec,
        spec,
        tuple(Published(**numbers) for numbers in attacks.values()),
        {source: Published(**numbers) for source, numbers in reported.items()},
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("parsimon.experiments") / name).read_text(encoding="utf-8"))
