"""Evaluations: the robust accuracy of several models at several radii, each a run in a folder of its own.

    results/
      evaluation.toml     the settings, as `EvaluationConfig` has them
      robust/eps-8_255/   the run of one model at one radius

Radii run in ascending order. An image that was fooled at a radius is fooled at every larger one, and is not attacked
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import tomli_w
from msgspec import Meta

from parsimon.attacks.registry import attack_rows
from parsimon.core.threat import Scores
from parsimon.core.types import Attack
from parsimon.defences.registry import any_random
from parsimon.errors import InputError, StoreError, quote
from parsimon.results.evaluation import Evaluation, EvaluationGrid
from parsimon.results.result import Result
from parsimon.runs import stored
from parsimon.runs.config import (
    Checked,
    Count,
    Flag,
    Names,
    Radius,
    RunConfig,
    check_names,
    read_toml,
)
from parsimon.runs.execute import Watch
from parsimon.runs.inputs import kind_returned
from parsimon.runs.progress import progress_context

ENSEMBLE = ("thrift", "square")  # what an evaluation runs, in this order
LABEL_ENSEMBLE = ("haggle", "rays")  # the same, if a model returns labels
WHITE_BOX = "pgd"
_CONFIG = "evaluation.toml"

Radii = Annotated[tuple[Radius, ...], Meta(min_length=1, description="at least one number or fraction such as 8/255")]
Counts = Annotated[tuple[Count, ...], Meta(min_length=1, description="at least one whole number, each at least 1")]

RunCell = Callable[[RunConfig, Collection[int]], Mapping[str, Result]]


class EvaluationConfig(Checked, frozen=True, kw_only=True):
    """The settings of an evaluation.

    Attributes:
        models: The models, as `parsimon run` takes them.
        eps: The radii, as numbers or fractions.
        budget: Queries allowed per image and attack; the robust accuracy is reported for each.
        attacks: Black-box attacks, in order. Each gets the images that no earlier one fooled. None: thrift and square,
            or haggle and rays if a model returns labels.
        white_box: Also run PGD, which sees gradients. The robust accuracy does not count it.
        run: The settings that all runs share; its model, radius, budget and attacks are not used.
    """

    models: Names = ("robust",)
    eps: Radii = ("8/255",)
    budget: Counts = (2000,)
    attacks: Names | None = None
    white_box: Flag = False
    run: RunConfig = RunConfig(selection="any")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("models", "budget"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise InputError(f"{name} must differ; got {quote(getattr(self, name))}", argument=name)
        radii = self.radii
        if len({RunConfig(eps=each, eight_bit=self.run.eight_bit).effective_radius for each in radii}) < len(radii):
            rounded = ", rounded down to multiples of 1/255 in 8-bit mode" if self.run.eight_bit else ""
            raise InputError(f"eps must be different radii{rounded}; got {quote(self.eps)}", argument="eps")
        order = sorted(range(len(radii)), key=radii.__getitem__)
        msgspec.structs.force_setattr(self, "eps", tuple(self.eps[place] for place in order))
        msgspec.structs.force_setattr(self, "budget", tuple(sorted(self.budget)))
        check_black_box(self.rows)
        if len(self.budget) > 1 and (self.run.stochastic or any_random(self.run.defence or ())):
            raise InputError(
                "a random model needs one run per budget: fresh draws decide about an image only once, at the end of "
                f"its attack. Choose one budget; got {quote(self.budget)}",
                argument="budget",
            )

    @property
    def rows(self) -> dict[str, Attack]:
        """The attacks by the names of their rows."""
        return attack_rows(self.attacks or ENSEMBLE)

    @property
    def radii(self) -> tuple[float, ...]:
        return tuple(RunConfig(eps=each).radius for each in self.eps)

    def cells(self, model: str) -> Iterator[RunConfig]:
        """Yield the run of a model at each radius."""
        attacks = (*(self.attacks or ENSEMBLE), *([WHITE_BOX] if self.white_box else []))
        for eps in self.eps:
            yield self.run.replace(
                model=model, eps=eps, attacks=attacks, budget=self.budget[-1], skip_fooled=self.budget[0]
            )

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values, as a TOML file has them. Execution is left out."""
        own = {name: value for name in OWN_SETTINGS if (value := getattr(self, name)) is not None}
        shared = {
            key: value for key, value in self.run.settings().items() if key in SHARED_SETTINGS and value is not None
        }
        return {**{key: list(value) if isinstance(value, tuple) else value for key, value in own.items()}, **shared}

    @classmethod
    def of(cls, settings: Mapping[str, Any], **execution: Any) -> EvaluationConfig:
        """Make a configuration from plain values; refuse unknown names with a suggestion."""
        check_names("an evaluation", settings, (*OWN_SETTINGS, *SHARED_SETTINGS, "execution"))
        own = {name: settings[name] for name in OWN_SETTINGS if name in settings}
        table = settings.get("execution", {})
        shared = {name: settings[name] for name in SHARED_SETTINGS if name in settings}
        run = RunConfig.of({**shared, "selection": "any", "execution": table}).replace(**execution)
        return cls(**{key: _as_list(value) for key, value in own.items()}, run=run)


OWN_SETTINGS = ("models", "eps", "budget", "attacks", "white_box")
_NOT_SHARED = {"model", "selection", "skip_fooled", "targets", "relative_to", "execution", *OWN_SETTINGS}
SHARED_SETTINGS = tuple(name for name in RunConfig.__struct_fields__ if name not in _NOT_SHARED)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple | bool) else [value]


def check_black_box(attacks: Mapping[str, Any]) -> None:
    """Refuse an attack that needs gradients: an evaluation is about an attacker who can only query."""
    if white_box := [name for name, attack in attacks.items() if attack.white_box]:
        raise InputError(
            f"evaluate measures an attacker who can only query, and {white_box[0]} needs gradients: white_box=True "
            "shows beside the robust accuracy what PGD leaves",
            argument="white_box",
        )


DEFAULTS = EvaluationConfig()


def default_attacks(kinds: Iterable[Scores]) -> tuple[str, ...]:
    """Return the attacks of an evaluation for what its models return. All models get the same, to be compared."""
    return LABEL_ENSEMBLE if "labels" in kinds else ENSEMBLE


def with_attacks(config: EvaluationConfig) -> EvaluationConfig:
    """Return the settings with the default attacks, if none are named. Unless `scores` is set, it opens the models."""
    if config.attacks is not None:
        return config

    def kind_of(model: str) -> Scores:
        run = config.run.replace(model=model, eps=config.eps[0])
        return run.scores or kind_returned(run, model, stored.data_of(run).images)

    return msgspec.structs.replace(config, attacks=default_attacks(map(kind_of, config.models)))


def evaluate_radii(
    cells: Sequence[RunConfig], attacks: Sequence[str], budgets: tuple[int, ...], run_cell: RunCell
) -> tuple[Evaluation, ...]:
    """Evaluate one model at ascending radii. `run_cell` runs one of them without some images.

    After Ctrl-C, no further radius is run.
    """
    evaluations: list[Evaluation] = []
    smaller: Evaluation | None = None
    for cell in cells:
        if smaller is None:
            results = run_cell(cell, ())
        elif smaller.stopped or smaller.unfinished or not (smaller.correct & ~smaller.settled).any():
            results = {}
        else:
            results = run_cell(cell, np.flatnonzero(smaller.settled).tolist())
        smaller = Evaluation(tuple(attacks), results, cell.radius, budgets, smaller)
        evaluations.append(smaller)
    return tuple(evaluations)


# --- stored evaluations -----------------------------------------------------------------------------------------------


def evaluate(config: EvaluationConfig, folder: str | Path, *, watch: Watch | None = None) -> EvaluationGrid:
    """Start an evaluation in a folder, or resume the one that is there if it has the same settings."""
    folder = Path(folder)
    if is_evaluation(folder):
        begun = evaluation_config(folder)
        if config.attacks is None:
            config = msgspec.structs.replace(config, attacks=begun.attacks)
        before = begun.settings()
        changed = [key for key, value in config.settings().items() if before.get(key) != value]
        if changed:
            raise InputError(f"{folder} holds an evaluation with other settings: {', '.join(changed)} differ")
    else:
        config = with_attacks(config)
    evaluations: dict[str, tuple[Evaluation, ...]] = {}

    def begin() -> None:
        if not is_evaluation(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stored.write_whole(folder / _CONFIG, tomli_w.dumps(config.settings()))

    def run_cell(cell: RunConfig, excluded: Collection[int]) -> Mapping[str, Result]:
        context = f"model {config.models.index(cell.model) + 1} of {len(config.models)}, eps {cell.eps}"
        with progress_context(context):
            place = cell_folder(folder, config, cell)
            resumed_by, alone = f"parsimon resume {folder}", len(config.models) == 1
            about: dict[str, Any] = {"resumed_by": resumed_by, "begin": begin, "needs_correct": alone}
            return stored.run(cell, place, excluded=excluded, watch=watch, **about).results

    for model in config.models:
        found = evaluate_radii([*config.cells(model)], [*config.rows], config.budget, run_cell)
        evaluations[model] = found
        if found[-1].stopped:
            break
    return _grid(config, evaluations)


def resume_evaluation(folder: str | Path, *, watch: Watch | None = None, **execution: Any) -> EvaluationGrid:
    """Resume an evaluation where it stopped, in the middle of an image if need be."""
    config = evaluation_config(folder)
    return evaluate(msgspec.structs.replace(config, run=config.run.replace(**execution)), folder, watch=watch)


def load_evaluation(folder: str | Path) -> EvaluationGrid:
    """Read an evaluation without its models; images that have not ended count as interrupted."""
    config = evaluation_config(folder)

    def read(cell: RunConfig, _: Collection[int]) -> Mapping[str, Result]:
        try:
            return stored.load(cell_folder(folder, config, cell)).results
        except stored.NotBegunError:
            return {}

    evaluations = begun_evaluations(config, read)
    if not evaluations:
        raise StoreError(f"the evaluation in {folder} has not begun: there is nothing to read yet")
    return _grid(config, evaluations)


def begun_evaluations(config: EvaluationConfig, read: RunCell) -> dict[str, tuple[Evaluation, ...]]:
    """Return the evaluations of the models whose first run has begun; `read` returns no results for other runs."""
    evaluations = {}
    for model in config.models:
        first, *_ = config.cells(model)
        if read(first, ()):
            evaluations[model] = evaluate_radii([*config.cells(model)], [*config.rows], config.budget, read)
    return evaluations


def _grid(config: EvaluationConfig, evaluations: Mapping[str, tuple[Evaluation, ...]]) -> EvaluationGrid:
    return EvaluationGrid(config.models, config.radii, evaluations)


def is_evaluation(folder: str | Path) -> bool:
    """Return whether a folder holds a stored evaluation."""
    return (Path(folder) / _CONFIG).exists()


def evaluation_config(folder: str | Path) -> EvaluationConfig:
    """Return the settings of the evaluation in a folder."""
    if not is_evaluation(folder):
        raise StoreError(f"{folder} holds no evaluation: there is no {_CONFIG} in it")
    return read_toml(Path(folder) / _CONFIG, EvaluationConfig.of)


def cell_folder(folder: str | Path, config: EvaluationConfig, cell: RunConfig) -> Path:
    """Return the folder of one model at one radius. Models whose names look alike are numbered."""
    names = [_slug(model) for model in config.models]
    place = config.models.index(cell.model)
    name = names[place] if names.count(names[place]) == 1 else f"{names[place]}-{place + 1}"
    return Path(folder) / name / f"eps-{_slug(str(cell.eps))}"


def _slug(text: str) -> str:
    """Return a text as the name of a folder."""
    return re.sub(r"[^\w.-]+", "_", text).strip("._")[-60:] or "model"


def evaluation_classes(folder: str | Path) -> tuple[str, ...] | None:
    """Return the names of the classes of an evaluation's data, where they are known."""
    config = evaluation_config(folder)
    first, *_ = config.cells(config.models[0])
    return stored.data_of(first).classes
