"""`parsimon.attack`, `compare`, `evaluate` and `assess_defence`: from a model, images and labels to a result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from parsimon.attacks import PGD, Thrift
from parsimon.attacks.registry import attack_rows, reference_row
from parsimon.core.threat import Loss, Scores
from parsimon.core.types import Attack
from parsimon.data.pairs import split_pairs
from parsimon.data.validate import as_images
from parsimon.defences import Defence
from parsimon.errors import InputError, check_whole
from parsimon.models import as_model, is_state_dict
from parsimon.results.defence import DefenceReport
from parsimon.results.evaluation import Evaluation, EvaluationGrid
from parsimon.results.result import Comparison, Result
from parsimon.runs.config import DEFAULTS, ExecutionOptions, RunConfig, check_names
from parsimon.runs.defences import FLAG_PRICE, assess_in_memory
from parsimon.runs.evaluation import EvaluationConfig, check_black_box, default_attacks, evaluate_radii
from parsimon.runs.execute import Watch, execute
from parsimon.runs.findings import BATCH_SIZE, Findings, find
from parsimon.runs.inputs import kind_returned
from parsimon.runs.preparation import Inputs

_INPUTS = ("model", "images", "labels", "eps")  # arguments of every function here

Attacks = Sequence[Attack | str] | Mapping[str, Attack | str]


class SharedSettings(TypedDict, total=False):
    """The settings of `attack`, `compare`, `evaluate` and `assess_defence`. All are optional.

    Attributes:
        budget: Queries allowed per image; 2,000 by default.
        scores: `"logits"`, `"probabilities"` if the model ends in a softmax, or `"labels"` if it returns classes alone.
            By default it is detected from the scores of the first images. See `Threat`.
        eight_bit: Show the model only images whose pixels are k / 255. See `Threat`.
        defence: Defences in front of the model: a name such as `"noise,sigma=0.02"`, an object such as
            `InputNoise(0.02)`, or a list of them. A query passes them in this order. See `parsimon.defences`.
        stochastic: Allow a model whose responses are random. An image then counts as fooled if the model errs in more
            than half of the fresh `draws` of the point that an attack returns. See `Sampling`.
        repeats: For a random model: queries that are averaged wherever an attack would make one; 1 by default.
        draws: For a random model: fresh draws per image, not charged; 100 by default.
        error_rate: For a random model: error rate of the tests by which an attack accepts a change and ends; 0.05 by
            default. 1: no tests, every response counts as exact.
        seed: Seed of the attack's random choices. An image's result depends on it and on the image's index.
        batch_size: Images per batch; by default 256, and on a CPU 64 to 512, more for more images.
        in_flight: Images attacked at once; it sets the memory used.
        workers: Worker processes; the model must then be given by its name or path. Results are the same. A script
            that uses this must start its work under `if __name__ == "__main__":`.
        ray: Address of a Ray cluster for the workers, or `"local"` for one on this machine.
        verify: Query every adversarial image once more at the end, uncharged, and report how many successes hold; on by
            default.
        progress: Show a bar on standard error; by default on a terminal, and elsewhere a line every 30 seconds.
        watch: A function that is called after each model call with the attack's name, the number of images, and a
            `Step`.
    """

    budget: int
    scores: Scores | None
    eight_bit: bool
    defence: Defence | str | Sequence[Defence | str] | None
    stochastic: bool
    repeats: int | None
    draws: int | None
    error_rate: float | None
    seed: int
    batch_size: int | None
    in_flight: int | None
    workers: int | None
    ray: str | None
    verify: bool
    progress: bool | None
    watch: Watch | None


class AttackSettings(SharedSettings, total=False):
    """The further settings of `attack`, `compare` and `evaluate`. All are optional.

    Attributes:
        loss: `"cross-entropy"` or `"margin"`; the attack's own by default. See `Threat`.
        until_budget: Let label-only attacks continue after their success until the budget is spent, to find closer
            adversarial images. See `Outcome.radius`.
    """

    loss: Loss | None
    until_budget: bool


class Settings(AttackSettings, total=False):
    """The further settings of `attack` and `compare`. All are optional.

    Attributes:
        targets: Classes to reach, for a targeted attack. With `"next"` it is the class after the true one, as in the
            paper for CIFAR-10. With `"random"` one is drawn per image, as in the paper for ImageNet. Without targets,
            any class but the true one is a success.
        at_most: Attack only this many correctly classified images: the first ones.
        sample: Attack a random sample of them instead, drawn with this seed. A larger sample contains the smaller.
    """

    targets: Any
    at_most: int | None
    sample: int | None


class EvaluationSettings(AttackSettings, total=False):
    """The settings of `evaluate`. All are optional.

    Attributes:
        budget: Queries allowed per image and attack, or a list of such numbers; the robust accuracy is exact at each.
    """

    budget: int | Sequence[int]  # type: ignore[misc]  # wider than that of one run


def attack(
    model: Any,
    images: Any,
    labels: Any = None,
    eps: float | str | None = None,
    *,
    attack: Attack | str | None = None,
    **settings: Unpack[Settings],
) -> Result:
    """Attack every image that the model classifies correctly, and report the queries that each took.

    Ctrl-C ends the attack after the model call under way. The result is then `stopped`, and says which images are
    unfinished.

    Args:
        model: A torch module, the path of an ONNX file, an onnxruntime session or a function of numpy images. Also a
            Foolbox model, an ART classifier, or the name of a model (`robust`, `hf:microsoft/resnet-50`).
        images: numpy or torch, (n, channels, rows, columns), float32 in [0, 1], or a sequence that reads its images
            lazily. Together with their labels: a torch `DataLoader` or a dataset of pairs (image, label).
        labels: The true classes; `"predicted"`: those that the model sees, so that every image is attacked. None if
            the images come with their labels.
        eps: The radius of the L-infinity ball, for images in [0, 1]: a number or a fraction such as `"8/255"`.
        attack: The attack with its settings, or its name as on the command line (`"bandits:imagenet-0.05"`); Thrift by
            default. For the paper's own, pass `"parsimonious"`.
        settings: Budget, targets, loss and others: see `Settings`.
    """
    check_names("attack", settings, (*_INPUTS, "attack", *Settings.__annotations__))
    attacks = attack_rows([Thrift() if attack is None else attack])
    (result,) = _run(attacks, (model, images, labels), eps, settings).values()
    return result


def compare(
    model: Any,
    images: Any,
    labels: Any = None,
    eps: float | str | None = None,
    attacks: Attacks = (),
    *,
    relative_to: str | None = None,
    **settings: Unpack[Settings],
) -> Comparison:
    """Run several attacks on the same images of the same model, counted the same way.

    Args:
        model: As for `attack`, like all that is not explained here.
        images: As for `attack`.
        labels: As for `attack`.
        eps: As for `attack`.
        attacks: The attacks, as `attack` takes them, or a mapping from row names to them.
        relative_to: The row over whose successes the queries of all are averaged once more; by default NES, as in the
            paper, if it is there.
        settings: See `Settings`. Each attack maximises its own loss unless one is set.
    """
    check_names("compare", settings, (*_INPUTS, "attacks", "relative_to", *Settings.__annotations__))
    rows = attack_rows(attacks)
    reference = reference_row(relative_to, rows)
    return Comparison(_run(rows, (model, images, labels), eps, settings), reference)


@overload
def evaluate(
    model: Any,
    images: Any,
    labels: Any = ...,
    eps: float | str | None = ...,
    *,
    attacks: Attacks | None = None,
    white_box: bool = False,
    **settings: Unpack[EvaluationSettings],
) -> Evaluation: ...


@overload
def evaluate(
    model: Any,
    images: Any,
    labels: Any = ...,
    eps: Sequence[float | str] = ...,
    *,
    attacks: Attacks | None = None,
    white_box: bool = False,
    **settings: Unpack[EvaluationSettings],
) -> EvaluationGrid: ...


def evaluate(
    model: Any,
    images: Any,
    labels: Any = None,
    eps: float | str | Sequence[float | str] | None = None,
    *,
    attacks: Attacks | None = None,
    white_box: bool = False,
    **settings: Unpack[EvaluationSettings],
) -> Evaluation | EvaluationGrid:
    """Measure the robust accuracy: the share of images that stay correctly classified under black-box attacks.

    Each attack gets the images that no earlier one fooled, each time with the whole budget. An image's result does not
    depend on the other images, so this gives what all attacks on all images would give, with fewer queries. An image
    that is fooled at one radius is fooled at every larger one, and is not attacked again.

    Args:
        model: As for `attack`, like all that is not explained here. A mapping from names to models evaluates several.
        images: As for `attack`; all of them count.
        labels: As for `attack`.
        eps: As for `attack`, or a list of radii.
        attacks: The attacks in their order, as `compare` takes them; by default Thrift and Square, or Haggle and RayS
            if a model returns labels.
        white_box: Also run PGD, which sees gradients, and show beside the robust accuracy what it leaves. It needs a
            model that gives gradients.
        settings: See `EvaluationSettings`.

    Returns:
        An `Evaluation`; for a mapping of models or a list of radii an `EvaluationGrid`.
    """
    known = (*_INPUTS, "attacks", "white_box", *EvaluationSettings.__annotations__)
    if beyond := sorted(set(settings) & (set(Settings.__annotations__) - set(AttackSettings.__annotations__))):
        raise InputError(
            f"evaluate has no setting {beyond[0]!r}: all images count, and leaving the true class is the goal. It has "
            f"{', '.join(known)}"
        )
    check_names("evaluate", settings, known)
    if attacks is not None:
        check_black_box(attack_rows(attacks))
    models: Mapping[str, Any] = model if isinstance(model, Mapping) and not is_state_dict(model) else {"model": model}
    plain: dict[str, Any] = {**settings}
    watch, budget = plain.pop("watch", None), plain.pop("budget", DEFAULTS.budget)
    config = EvaluationConfig(
        models=tuple(models),
        eps=_as_tuple(_check_given(eps)),
        budget=_as_tuple(budget),
        white_box=white_box,
        run=_config(plain, images="all"),
    )
    images, labels = split_pairs(images, labels)  # once, since a loader may shuffle
    rows = attack_rows(_default_attacks(config, models.values(), images) if attacks is None else attacks)
    with_pgd = {**rows, **({PGD.__name__: PGD()} if white_box else {})}
    evaluations = {}
    for name, each in models.items():

        def run_cell(cell: RunConfig, excluded: Collection[int], model: Any = each) -> Mapping[str, Result]:
            inputs = Inputs(model, images, labels, excluded=excluded, needs_correct=len(models) == 1)
            return execute(cell, with_pgd, inputs, watch=watch)

        evaluations[name] = evaluate_radii([*config.cells(name)], tuple(rows), config.budget, run_cell)
        if evaluations[name][-1].stopped:
            break
    if not _is_list(eps) and not isinstance(model, Mapping):
        return evaluations["model"][0]
    return EvaluationGrid(config.models, config.radii, evaluations)


def assess_defence(
    model: Any,
    images: Any,
    labels: Any = None,
    eps: float | str | None = None,
    *,
    flag_price: float = FLAG_PRICE,
    **settings: Unpack[SharedSettings],
) -> DefenceReport:
    """Measure what a defence buys: the accuracy that attackers leave without it, and behind it.

    Attackers who do not know the defence come first, then those who do. They average draws, undo scores, use labels
    alone, or send queries that are far apart, as fits the defence. If the model returns labels, all of them use labels.

    Args:
        model: As for `attack`, like all that is not explained here.
        images: As for `attack`; all of them count.
        labels: As for `attack`.
        eps: As for `attack`.
        flag_price: Cost of a query that a detector flags, in queries.
        settings: See `SharedSettings`. `defence` is required. `stochastic` is needed only for a model that is random
            without the defence. Each attack maximises its own loss.
    """
    check_names("assess_defence", settings, (*_INPUTS, "flag_price", *SharedSettings.__annotations__))
    plain: dict[str, Any] = {**settings}
    watch = plain.pop("watch", None)
    config = _config(plain, eps=_check_given(eps), images="all")
    images, labels = split_pairs(images, labels)

    def run(cell: RunConfig, attacks: Mapping[str, Attack]) -> Comparison:
        return Comparison(execute(cell, attacks, Inputs(model, images, labels), watch=watch))

    return assess_in_memory(config, flag_price, run, model, images)


def _default_attacks(config: EvaluationConfig, models: Iterable[Any], images: Any) -> tuple[str, ...]:
    """Return the default attacks of an evaluation, by what the models return."""
    run, pixels = config.run.replace(eps=config.eps[0]), as_images(images)
    return default_attacks(kind_returned(run, model, pixels) for model in models)


def check(
    model: Any,
    images: Any,
    labels: Any = None,
    *,
    scores: Scores | None = None,
    batch_size: int = BATCH_SIZE,
    defence: Defence | str | Sequence[Defence | str] | None = None,
    stochastic: bool = False,
) -> Findings:
    """Check a model and its data before an attack, as `parsimon check` does: ranges, labels, determinism, accuracy.

    Args:
        model: As for `attack`, like images and labels.
        images: As for `attack`.
        labels: As for `attack`.
        scores: What the model returns; by default it is detected.
        batch_size: Images per batch.
        defence: Defences in front of the model, as for `attack`.
        stochastic: Allow a model whose responses are random: its classes are those of most draws.

    Returns:
        A list of findings. `attackable` is whether none of them is an error; printed, it reads like the command.
    """
    config = _config({"scores": scores, "batch_size": batch_size, "defence": defence, "stochastic": stochastic})
    return Findings(find(as_model(model), images, labels, config))


def _run(
    attacks: Mapping[str, Attack],
    inputs: tuple[Any, Any, Any],
    eps: Any,
    settings: Mapping[str, Any],
) -> dict[str, Result]:
    """Describe the run and execute it."""
    plain = dict(settings)
    watch, targets, at_most = (plain.pop(name, None) for name in ("watch", "targets", "at_most"))
    if at_most is not None:
        check_whole("at_most", at_most, 1)
    config = _config(plain, eps=_check_given(eps), images="all" if at_most is None else at_most)
    model, images, labels = inputs
    return execute(config, attacks, Inputs(model, *split_pairs(images, labels), targets=targets), watch=watch)


def _check_given(eps: Any) -> Any:
    if eps is None:
        raise InputError("eps is missing: give the radius of the ball, as in eps=8/255", argument="eps")
    return eps


def _config(settings: Mapping[str, Any], **further: Any) -> RunConfig:
    """Describe a run by its settings, among which those of its execution are recognised by their names."""
    execution = {name: settings[name] for name in ExecutionOptions.__struct_fields__ if name in settings}
    own = {name: value for name, value in settings.items() if name not in execution}
    return RunConfig(**own, **further, execution=ExecutionOptions(**execution))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if _is_list(value) else (value,)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and np.ndim(value) > 0
