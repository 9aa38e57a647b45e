"""Assess a defence: run attackers who do not know it and attackers who do, and compare with an undefended model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from parsimon.attacks.registry import attack_rows
from parsimon.core.threat import Scores
from parsimon.core.types import Attack
from parsimon.data.validate import as_images
from parsimon.defences.registry import any_random, format_defence, parse_defence
from parsimon.errors import InputError, NothingToAttackError, check_number
from parsimon.results.defence import NO_DEFENCE, UNAWARE, DefenceReport
from parsimon.results.result import Comparison
from parsimon.runs import stored
from parsimon.runs.config import SAMPLING, RunConfig
from parsimon.runs.evaluation import ENSEMBLE, LABEL_ENSEMBLE
from parsimon.runs.execute import Watch
from parsimon.runs.inputs import kind_returned
from parsimon.runs.progress import progress_context

FAR_APART = ("scatter",)  # no query is close to another one
TESTS, QUERIES_FAR_APART, UNDOES, USES_LABELS = "tests changes", "queries far apart", "undoes it", "uses labels alone"
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
        return _slug(self.name)


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def attackers(
    defence: tuple[str, ...], *, stochastic: bool = False, labels: bool = False, averaged: int = _AVERAGED
) -> Iterator[Attacker]:
    """Yield the attackers that a defence is assessed with: first without it, then without knowing it, then knowing it.

    - Noise, or a random model: average draws, and accept changes by tests.
    - A detector: send queries that are far apart.
    - Scores that can be undone: compute them from those returned.
    - Anything that changes scores or images: use labels alone, which needs a model that is not random.

    Args:
        defence: The defences, as typed.
        stochastic: Whether the model may be random without them.
        labels: Whether the model returns labels only, so that every attacker has to use them.
        averaged: Draws that an attacker averages.
    """
    parsed = [parse_defence(each) for each in defence]
    watched = any(each.changes == "nothing" for each in parsed)
    attacks = LABEL_ENSEMBLE if labels else ENSEMBLE
    behind: dict[str, Any] = {"defence": defence}
    yield Attacker(NO_DEFENCE, attacks, {})
    random = stochastic or any_random(defence)
    if random:
        behind["stochastic"] = True
        yield Attacker(UNAWARE, attacks, {**behind, "error_rate": 1, "repeats": None})
        yield Attacker(f"averages {averaged} draws", attacks, {**behind, "error_rate": 1, "repeats": averaged})
        yield Attacker(TESTS, attacks, behind)
    else:
        yield Attacker(UNAWARE, attacks, behind)
    if labels:
        return
    if watched:
        yield Attacker(QUERIES_FAR_APART, FAR_APART, behind)
    undone = [each.undone() for each in parsed]
    if any(undone):
        known = tuple(
            text if each is None else format_defence(each) for text, each in zip(defence, undone, strict=True)
        )
        yield Attacker(UNDOES, attacks, {**behind, "defence": known})
    if not random and any(each.changes != "nothing" for each in parsed):
        yield Attacker(USES_LABELS, LABEL_ENSEMBLE[:1], behind)


def assess(
    config: RunConfig,
    run: RunAttacker,
    flag_price: float = FLAG_PRICE,
    *,
    find_kind: Callable[[], Scores] = lambda: "logits",
) -> DefenceReport:
    """Run all attackers on the same images. `config` names the defence, `run` runs one attacker.

    `find_kind` opens the model and returns what it returns without the defence; by default, scores.
    """
    check_assessable(config, flag_price)
    assert config.defence is not None, "checked above"
    labels = find_kind() == "labels"
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
        if found.stopped:
            break
    return DefenceReport(" + ".join(config.defence), comparisons, float(flag_price), broken)


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
    if flag_price != FLAG_PRICE and all(parse_defence(each).changes != "nothing" for each in config.defence):
        raise InputError(
            f"flag_price is the cost of a query that a detector flags, and {' + '.join(config.defence)} flags none: "
            "leave it out",
            argument="flag_price",
        )
    for name in ("loss", "until_budget"):
        if getattr(config, name):
            raise InputError(f"each attacker chooses its own attacks and losses: leave out {name}", argument=name)
    if config.targets is not None:
        raise InputError("a defence is assessed by untargeted attacks: leave out targets", argument="targets")


def _check_labels(config: RunConfig, defence: tuple[str, ...]) -> None:
    """Refuse what cannot be measured if the model returns labels only."""
    for text in defence:
        if parse_defence(text).changes == "scores":
            raise InputError(f"{text} changes scores, and this model returns labels", argument="defence")
    if config.stochastic or any_random(defence):
        raise InputError(
            "this model returns labels, and no attack that uses labels alone can be run on a random model: assess the "
            "defence in front of a model that returns scores",
            argument="defence",
        )


def is_begun(folder: str | Path) -> bool:
    """Return whether a folder holds the first of the runs that assess a defence."""
    return stored.is_run(Path(folder) / _slug(NO_DEFENCE))


def assess_stored(
    config: RunConfig, folder: str | Path, flag_price: float = FLAG_PRICE, *, watch: Watch | None = None
) -> DefenceReport:
    """Assess a defence in a folder, with a stored run per attacker; continue what is there."""

    def run(attacker: Attacker, settings: RunConfig) -> Comparison:
        with progress_context(attacker.name):
            place, resumed_by = Path(folder) / attacker.slug, f"the same command, with --out {folder}"
            return stored.run(settings, place, watch=watch, resumed_by=resumed_by)

    def find_kind() -> Scores:
        return kind_returned(config, config.model, stored.data_of(config).images)

    return assess(config, run, flag_price, find_kind=find_kind)


def assess_in_memory(
    config: RunConfig,
    flag_price: float,
    run: Callable[[RunConfig, Mapping[str, Attack]], Comparison],
    model: Any,
    images: Any,
) -> DefenceReport:
    """Assess a defence without a folder. `model` and `images` are those of all runs."""

    def run_attacker(_: Attacker, settings: RunConfig) -> Comparison:
        return run(settings, attack_rows(settings.attacks))

    def find_kind() -> Scores:
        return kind_returned(config, model, as_images(images))

    return assess(config, run_attacker, flag_price, find_kind=find_kind)
