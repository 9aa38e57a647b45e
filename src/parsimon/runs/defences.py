"""Assess a defence: run attackers who do not know it and attackers who do, and compare with an undefended model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from parsimon.attacks.registry import attack_rows
from parsimon.core.threat import Scores
from parsimon.core.types import Attack
from parsimon.data.validate import as_images
from parsimon.defences import AAA, Defence, parse_defence
from parsimon.defences.base import ScoreDefence, StatefulDefence
from parsimon.defences.registry import any_random
from parsimon.errors import InputError, NothingToAttackError, check_number
from parsimon.results.defence import DefenceReport
from parsimon.results.result import Comparison
from parsimon.runs import stored
from parsimon.runs.config import SAMPLING, RunConfig
from parsimon.runs.evaluation import ENSEMBLE, LABEL_ENSEMBLE
from parsimon.runs.execute import Watch
from parsimon.runs.inputs import kind_returned
from parsimon.runs.progress import progress_context

FAR_APART = ("scatter",)  # no query is close to another one
FLAG_PRICE = 100.0  # of a flagged query, in queries
_AVERAGED = 8  # draws

RunAttacker = Callable[["Attacker", RunConfig], Comparison]


class Attacker(NamedTuple):
    """An attacker: a name for the table, and the settings in which its run differs."""

    name: str
    attacks: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return self.name.replace(" ", "-")


def attackers(
    defence: tuple[str, ...], *, stochastic: bool = False, labels: bool = False, averaged: int = _AVERAGED
) -> Iterator[Attacker]:
    """Yield the attackers that a defence is assessed with: first without it, then without knowing it, then knowing it.

    - Noise, or a random model: average draws, and accept changes by tests.
    - A detector: send queries that are far apart.
    - AAA: undo it, where that is possible.
    - Anything else that changes scores or images: use labels alone, which needs a model that is not random.

    Args:
        defence: The defences, as typed.
        stochastic: Whether the model may be random without them.
        labels: Whether the model returns labels only, so that every attacker has to use them.
        averaged: Draws that an attacker averages.
    """
    parsed = [parse_defence(each) for each in defence]
    watched = any(isinstance(each, StatefulDefence) for each in parsed)
    attacks = LABEL_ENSEMBLE if labels else ENSEMBLE
    behind: dict[str, Any] = {"defence": defence}
    yield Attacker("no defence", attacks, {})
    random = stochastic or any_random(defence)
    if random:
        behind["stochastic"] = True
        yield Attacker("unaware of it", attacks, {**behind, "error_rate": 1, "repeats": None})
        yield Attacker(f"averages {averaged} draws", attacks, {**behind, "error_rate": 1, "repeats": averaged})
        yield Attacker("tests changes", attacks, behind)
    else:
        yield Attacker("unaware of it", attacks, behind)
    if labels:
        return
    if watched:
        yield Attacker("queries far apart", FAR_APART, behind)
    if any(map(_can_be_undone, parsed)):
        undone = ["known=true" if _can_be_undone(each) else "" for each in parsed]
        known = tuple(",".join(filter(None, pair)) for pair in zip(defence, undone, strict=True))
        yield Attacker("undoes it", attacks, {**behind, "defence": known})
    if not random and not all(isinstance(each, StatefulDefence) for each in parsed):
        yield Attacker("uses labels alone", LABEL_ENSEMBLE[:1], behind)


def _can_be_undone(defence: Defence) -> bool:
    return isinstance(defence, AAA) and defence.reversible and not defence.known


def assess(
    config: RunConfig, run: RunAttacker, flag_price: float = FLAG_PRICE, *, kind: Scores | None = None
) -> DefenceReport:
    """Run all attackers on the same images. `config` names the defence, `run` runs one attacker.

    `kind` is what the model returns without the defence; None: scores.
    """
    check_assessable(config, flag_price)
    assert config.defence is not None, "checked above"
    labels = kind == "labels"
    if labels:
        _check_labels(config, config.defence)
    averaged = min(_AVERAGED, config.budget)
    every = attackers(config.defence, stochastic=config.stochastic, labels=labels, averaged=averaged)
    planned = [(attacker, _settings_of(attacker, config)) for attacker in every]  # all are checked before the first run
    comparisons: dict[str, Comparison] = {}
    broken = False
    for attacker, settings in planned:
        try:
            found = run(attacker, settings)
        except NothingToAttackError:
            if settings.defence is None:
                raise
            broken = True  # no attacker is needed
            break
        comparisons[attacker.name] = found
        if found.unfinished:
            break
    return DefenceReport(" + ".join(config.defence), comparisons, flag_price, broken)


def _settings_of(attacker: Attacker, config: RunConfig) -> RunConfig:
    """Return the settings of an attacker's run."""
    settings = {"defence": None, "attacks": attacker.attacks, **attacker.settings}
    if not settings.get("stochastic", config.stochastic):
        settings.update(dict.fromkeys(SAMPLING))
    return config.replace(**settings)


def check_assessable(config: RunConfig, flag_price: float) -> None:
    """Refuse settings with which no defence can be assessed."""
    check_number("flag_price", flag_price, 1)
    if not config.defence:
        raise InputError(
            "there is no defence to assess: name one, as in defence='noise,sigma=0.02'", argument="defence"
        )
    for name in ("loss", "until_budget"):
        if getattr(config, name):
            raise InputError(f"each attacker chooses its own attacks and losses: leave out {name}", argument=name)
    if config.targets is not None:
        raise InputError("a defence is assessed by untargeted attacks: leave out targets", argument="targets")


def _check_labels(config: RunConfig, defence: tuple[str, ...]) -> None:
    """Refuse what cannot be measured if the model returns labels only."""
    for text in defence:
        if isinstance(parse_defence(text), ScoreDefence):
            raise InputError(f"{text} changes scores, and this model returns labels", argument="defence")
    if config.stochastic or any_random(defence):
        raise InputError(
            "this model returns labels, and no attack that uses labels alone can be run on a random model: assess the "
            "defence in front of a model that returns scores",
            argument="defence",
        )


def assess_stored(
    config: RunConfig, folder: str | Path, flag_price: float = FLAG_PRICE, *, watch: Watch | None = None
) -> DefenceReport:
    """Assess a defence in a folder, with a stored run per attacker; continue what is there."""

    def run(attacker: Attacker, settings: RunConfig) -> Comparison:
        with progress_context(attacker.name):
            place, resumed_by = Path(folder) / attacker.slug, f"the same command, with --out {folder}"
            return stored.run(settings, place, watch=watch, resumed_by=resumed_by)

    check_assessable(config, flag_price)
    kind = kind_returned(config, config.model, stored.data_of(config).images)
    return assess(config, run, flag_price, kind=kind)


def assess_in_memory(
    config: RunConfig,
    flag_price: float,
    run: Callable[[RunConfig, Mapping[str, Attack]], Comparison],
    model: Any,
    images: Any,
) -> DefenceReport:
    """Assess a defence without a folder. `model` and `images` are those of all runs."""
    check_assessable(config, flag_price)
    kind = kind_returned(config, model, as_images(images))
    return assess(config, lambda _, settings: run(settings, attack_rows(settings.attacks)), flag_price, kind=kind)
