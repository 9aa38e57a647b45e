"""`parsimon evaluate`: the verdict on one or several models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from parsimon import runs
from parsimon.cli.baseline import BASELINE, Against
from parsimon.cli.completion import ATTACK_NAMES, MODEL_NAMES
from parsimon.cli.diff import NO_WORSE_THAN
from parsimon.cli.estimate import DRY_RUN, PRICE, check_price, show_estimates
from parsimon.cli.options import (
    ATTACK_HELP,
    BATCH_SIZE,
    DATA,
    DATA_IMAGES,
    DEFENCE,
    DOWNLOAD,
    EIGHT_BIT,
    EXECUTION,
    FORMAT,
    LOSS,
    OUT,
    PREPROCESS,
    RANDOM,
    SCORES,
    SEED,
    UNTIL_BUDGET,
    GroupedCommand,
    given_settings,
    options,
    take_execution,
)
from parsimon.cli.output import JSON, QUIET, note_images
from parsimon.cli.present import (
    BLACK_BOX_ONLY,
    FAIL_UNDER,
    GATE,
    PICTURE,
    RESULTS,
    Headline,
    Output,
    Shown,
    write_examples,
)
from parsimon.cli.run import ensure_inputs, results_folder
from parsimon.errors import InputError
from parsimon.report.export import write_results
from parsimon.report.page import PAGE, write_report
from parsimon.results.chance import NO_CHANCE
from parsimon.results.evaluation import Evaluation, EvaluationGrid
from parsimon.results.headline import evaluation_basis, evaluation_headline
from parsimon.results.notes import evaluation_with_gradients
from parsimon.results.table import write_tables
from parsimon.results.text import radius_text
from parsimon.runs.config import read_toml
from parsimon.runs.dry_run import estimate_evaluation
from parsimon.runs.evaluation import (
    DEFAULTS,
    ENSEMBLE,
    LABEL_ENSEMBLE,
    OWN_SETTINGS,
    SHARED_SETTINGS,
    EvaluationConfig,
    evaluation_config,
    with_attacks,
)


class _Listed(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """Several values, separated by commas."""

    def __init__(self, kind: click.ParamType, name: str) -> None:  # type: ignore[type-arg]
        self._kind, self.name = kind, name

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        return tuple(self._kind.convert(each.strip(), parameter, context) for each in value.split(","))


_SETTINGS = (
    DATA,
    PREPROCESS,
    SCORES,
    *DATA_IMAGES,
    click.option(
        "--eps",
        type=_Listed(click.STRING, "radii"),
        metavar="RADIUS[,RADIUS]...",
        default=",".join(map(str, DEFAULTS.eps)),
        show_default=True,
        help="Radii of the L-infinity ball, for images in [0, 1]: numbers or fractions, separated by commas.",
    ),
    click.option(
        "--budget",
        type=_Listed(click.INT, "numbers"),
        metavar="QUERIES[,QUERIES]...",
        default=",".join(map(str, DEFAULTS.budget)),
        show_default=True,
        help="Queries allowed per image and attack. The robust accuracy is reported for each number.",
    ),
    click.option(
        "--attack",
        "attacks",
        multiple=True,
        help=f"{ATTACK_HELP} May be given more than once. Each attack gets the images that no earlier one fooled. "
        f"[default: {', '.join(ENSEMBLE)}; if a model returns labels, {', '.join(LABEL_ENSEMBLE)}]",
        shell_complete=ATTACK_NAMES,
    ),
    click.option("--white-box", is_flag=True, help="Also run PGD, which sees gradients. --fail-under ignores it."),
    LOSS,
    EIGHT_BIT,
    DEFENCE,
    *RANDOM,
    UNTIL_BUDGET,
    SEED,
    BATCH_SIZE,
    OUT,
)


def _refuse_model(_context: click.Context, _parameter: click.Parameter, given: str | None) -> None:
    if given is not None:
        raise click.UsageError(f"Models are given without --model: parsimon evaluate {given}")


# An option of the other commands, which is refused with a hint.
_MISTAKEN = click.option("--model", hidden=True, expose_value=False, callback=_refuse_model)


@click.command(cls=GroupedCommand)
@options(*_SETTINGS, DOWNLOAD, *EXECUTION, DRY_RUN, PRICE)
@options(FORMAT, FAIL_UNDER, BASELINE, NO_WORSE_THAN, GATE, JSON, QUIET)
@_MISTAKEN
@click.argument("models", nargs=-1, metavar="[MODEL]... | SPEC.toml", shell_complete=MODEL_NAMES)
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    models: tuple[str, ...],
    out: Path | None,
    **settings: Any,
) -> None:
    """Measure the robust accuracy of models: the share of images that stay correctly classified under attack.

    Without arguments: the bundled adversarially trained CIFAR-10 network, 100 images, at eps 8/255, under Thrift and
    Square. A model that returns labels is attacked with Haggle and RayS. An image that is fooled at one radius counts
    as fooled at every larger one, and is not attacked again. The evaluation is stored as it goes; `parsimon resume`
    continues it. It ends with a table and an HTML page.

    \b
    parsimon evaluate
    parsimon evaluate robust standard --eps 1/255,2/255,4/255,8/255
    parsimon evaluate model.onnx --data images.npz --images all --budget 500,2000
    parsimon evaluate model.onnx --data images.npz --white-box --fail-under 0.30
    parsimon evaluate new.onnx --data images.npz --baseline old --no-worse-than 0.02
    parsimon evaluate evaluation.toml --out results
    """
    execution = take_execution(settings)
    check_price(settings["price_per_1000"], dry_run=settings["dry_run"])
    output = Output.of(settings)
    config = _configured(models, given_settings(context, (*OWN_SETTINGS, *SHARED_SETTINGS)), execution)
    folder = results_folder(out)
    planned = [cell for model in config.models for cell in config.cells(model)]
    ensure_inputs(planned, download=settings["download"])
    against = Against.given(settings["baseline"], settings["no_worse_than"], settings["gate"], planned)
    if settings["dry_run"]:
        show_estimates(estimate_evaluation(with_attacks(config)), settings["price_per_1000"])
        return
    grid = runs.evaluate(config, folder)
    finish(grid, folder, replace(output, against=against))


def _configured(models: tuple[str, ...], typed: Mapping[str, Any], execution: Mapping[str, Any]) -> EvaluationConfig:
    """Return the configuration: a file's settings, replaced by those on the command line."""
    if any(name.endswith(".toml") for name in models):
        if len(models) > 1:
            raise InputError("name one TOML file that describes the evaluation, or models; got both")
        begun = read_toml(Path(models[0]), EvaluationConfig.of)
        typed = {name: value for name, value in typed.items() if name != "models"}  # the file names them
        kept = {**msgspec.structs.asdict(begun.run.execution), **execution}
        return EvaluationConfig.of({**begun.settings(), **typed}, **kept)
    return EvaluationConfig.of({**typed, **({"models": models} if models else {})}, **execution)


def finish(grid: EvaluationGrid, folder: Path, output: Output) -> NoReturn:
    """Write the result files and the page, print the verdict, and exit with the code for scripts."""
    results = {
        f"{model}, eps {radius_text(evaluation.effective_eps)}, {name}": result
        for model, evaluation in _cells(grid)
        for name, result in evaluation.results.items()
    }
    view = shown(grid, folder)
    asked, there = evaluation_config(folder).run.images, len(grid.any_evaluation.correct)
    note_images(asked, there, DEFAULTS.run.images)
    write_results(results, folder / RESULTS)
    written = [folder / RESULTS, *write_tables(view.tables, folder), folder / PAGE]
    write_report([folder], folder / PAGE)
    if write_examples(results.values(), folder / PICTURE, runs.evaluation_classes(folder)):
        written.append(folder / PICTURE)
    view.leave(output, written)


def shown(grid: EvaluationGrid, folder: Path) -> Shown:
    """Return the output about an evaluation. The table of one model at one radius lists the attacks."""
    alone = len(grid.models) == len(grid.radii) == 1
    return Shown(
        folder,
        [_headline(model, row) for model, row in grid.evaluations.items()],
        [grid.any_evaluation.table() if alone else grid.table()],
        described(grid, folder),
        {_compared(model, each): each.verdict() for model, each in _cells(grid)},
        not grid.finished,
    )


def _compared(model: str, evaluation: Evaluation) -> str:
    """Return what a gate compares the robust accuracy of."""
    counted = "" if evaluation.white_box_verdict is None else BLACK_BOX_ONLY
    return f" for {model} at eps {radius_text(evaluation.effective_eps)}{counted}"


def _headline(model: str, row: tuple[Evaluation, ...]) -> Headline:
    """Return the verdict on a model at its largest radius."""
    warnings = dict.fromkeys(warning for evaluation in row for warning in evaluation.warnings)
    seen = evaluation_with_gradients({"": row[-1]})
    line = "; ".join(filter(None, (evaluation_headline(row[-1], model), seen)))
    bound = "" if row[-1].random else "An upper bound: "  # chance may lower that of a random model
    return Headline(line, f"{bound}{evaluation_basis(row[-1])}", warnings)


def _cells(grid: EvaluationGrid) -> list[tuple[str, Evaluation]]:
    return [(model, evaluation) for model, row in grid.evaluations.items() for evaluation in row]


def described(grid: EvaluationGrid, folder: Path) -> dict[str, Any]:
    """Return an evaluation as a JSON document."""
    return {
        "evaluation": str(folder),
        "finished": grid.finished,
        "defence": list(grid.any_evaluation.any_result.defence) or None,
        "images": len(grid.any_evaluation.correct),
        "models": [_model(model, grid.evaluations.get(model, ())) for model in grid.models],
    }


def _model(model: str, row: tuple[Evaluation, ...]) -> dict[str, Any]:
    return {
        "model": model,
        "clean_accuracy": row[0].clean_accuracy if row else None,
        "radii": [_radius(evaluation) for evaluation in row],
    }


def _radius(evaluation: Evaluation) -> dict[str, Any]:
    white_box = evaluation.white_box_verdict
    return {
        "eps": evaluation.eps,
        "unfinished": evaluation.unfinished,
        "robust_accuracy": evaluation.verdict().as_dict(),
        "within": [
            {"budget": budget, "robust_accuracy": evaluation.verdict(budget).as_dict()} for budget in evaluation.budgets
        ],
        "white_box_accuracy": None if white_box is None else white_box.as_dict(),
        **NO_CHANCE,
        **({} if evaluation.chance is None else evaluation.chance.as_dict()),
        "queries": int(evaluation.queries.sum()),
        "warnings": list(evaluation.warnings),
    }
