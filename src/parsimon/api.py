"""`parsimon.attack`, `parsimon.compare` and `parsimon.evaluate`: a model, images and labels to a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from parsimon.attacks import Parsimonious, Square, Thrift
from parsimon.attacks.registry import attack_rows, reference_row
from parsimon.core.threat import Loss, Scores
from parsimon.core.types import Attack
from parsimon.errors import InputError
from parsimon.results.evaluation import Evaluation
from parsimon.results.result import Comparison, Result
from parsimon.runs.execute import ExecutionOptions, launch
from parsimon.runs.settings import check_known


class SharedSettings(ExecutionOptions, total=False):
    """What `attack`, `compare` and `evaluate` share. All of it may be left out.

    Attributes:
        budget: Queries allowed for each image; 2,000 by default.
        loss: `"cross-entropy"` or `"margin"`; the attack's own by default. See `Threat`.
        scores: `"logits"`, or `"probabilities"` if the model ends in a softmax; None: whichever its scores of the first
            images are. `"logits"` by default. See `Threat`.
        eight_bit: Show the model only images whose pixels are k / 255. See `Threat`.
        seed: Of the attack's random choices. An image's result depends on it and on the image's place in `images`.
        batch_size: Images in a batch; 256 by default; on a CPU 64 to 512, the more images there are.
        in_flight: Images attacked at once; it sets the memory that is used.
        workers: Processes to spread the work over; the model must then be given by its name or path. Results are the
            same. A script that uses this must start its work under `if __name__ == "__main__":`.
        ray: The address of a Ray cluster to spread the work over, or `"local"` for one on this machine.
        verify: Query every adversarial image once more at the end, uncharged, and report how many successes hold; on by
            default.
        progress: Show a live line on standard error; by default if that is a terminal.
    """

    budget: int
    loss: Loss | None
    scores: Scores | None
    eight_bit: bool
    seed: int
    batch_size: int | None


class Settings(SharedSettings, total=False):
    """What `attack` and `compare` take besides. All of it may be left out.

    Attributes:
        targets: Classes to reach, for a targeted attack; `"next"`: the class after the true one, as the paper's authors
            do for CIFAR-10; `"random"`: one drawn for each image, as they do for ImageNet. Without targets, any class
            but the true one will do.
        at_most: Attack only so many correctly classified images: the first ones.
        sample: Attack a random sample of them instead; this is its seed. A larger sample contains the smaller.
    """

    targets: Any
    at_most: int | None
    sample: int | None


ENSEMBLE: tuple[Attack, ...] = (Thrift(), Square())  # what `evaluate` runs, in this order


def attack(
    model: Any,
    images: Any,
    labels: Any,
    eps: float,
    *,
    attack: Attack | str | None = None,
    **settings: Unpack[Settings],
) -> Result:
    """Attack every image that the model classifies correctly, and say how many queries each took.

    Ctrl-C ends the attack after the model call in work; the result then says which images are unfinished.

    Args:
        model: A torch module, the path of an ONNX file, an onnxruntime session, a function of numpy images, a Foolbox
            model, an ART classifier, or the name of a model (`robust`, `hf:microsoft/resnet-50`).
        images: numpy or torch, (n, channels, rows, columns), float32 in [0, 1]; or any sequence that reads its images
            when they are asked for.
        labels: The true classes; `"predicted"`: those that the model sees, so that every image is attacked.
        eps: The radius of the L-infinity ball, for images in [0, 1].
        attack: The attack with its settings, or what the command line takes (`"bandits:imagenet-0.05"`); the paper's by
            default.
        settings: Budget, targets, loss and others: see `Settings`.
    """
    check_known("attack", settings, Settings.__annotations__)
    attacks = attack_rows([Parsimonious() if attack is None else attack])
    (result,) = launch(attacks, model, images, labels, eps, **settings).values()
    return result


def compare(
    model: Any,
    images: Any,
    labels: Any,
    eps: float,
    attacks: Sequence[Attack | str] | Mapping[str, Attack | str],
    *,
    relative_to: str | None = None,
    **settings: Unpack[Settings],
) -> Comparison:
    """Several attacks on the same images of the same model, counted the same way.

    Args:
        model: As for `attack`, like all that is not explained here.
        images: As for `attack`.
        labels: As for `attack`.
        eps: As for `attack`.
        attacks: The attacks, as `attack` takes them; or a mapping from names for their rows to them.
        relative_to: The row over whose successes the queries of all are averaged once more; by default NES, as in the
            paper, where it is among them.
        settings: See `Settings`. Each attack climbs its own loss unless one is chosen.
    """
    check_known("compare", settings, Settings.__annotations__)
    rows = attack_rows(attacks)
    reference = reference_row(relative_to, rows)
    return Comparison(launch(rows, model, images, labels, eps, **settings), reference)


def evaluate(
    model: Any,
    images: Any,
    labels: Any,
    eps: float,
    *,
    attacks: Sequence[Attack | str] | Mapping[str, Attack | str] = ENSEMBLE,
    **settings: Unpack[SharedSettings],
) -> Evaluation:
    """The share of the images that the model classifies correctly whatever some black-box attacks do.

    Each attack meets the images that those before it did not fool, each time with the whole budget; so an image is
    robust if none of them fools it. Since an image's result does not depend on which others are attacked, that is what
    all of them on all images would come to, for fewer queries.

    Args:
        model: As for `attack`, like all that is not explained here.
        images: As for `attack`; all of them count.
        labels: As for `attack`.
        eps: As for `attack`.
        attacks: The attacks in their order, as `compare` takes them; by default Thrift and Square.
        settings: See `SharedSettings`. What the scores are is told from them unless it is said.
    """
    if beyond := sorted(set(settings) & (set(Settings.__annotations__) - set(SharedSettings.__annotations__))):
        raise InputError(
            f"evaluate has no setting {beyond[0]!r}: all images count, and to leave the true class is the goal. It has "
            f"{', '.join(SharedSettings.__annotations__)}"
        )
    check_known("evaluate", settings, SharedSettings.__annotations__)
    rows = attack_rows(attacks)
    if seeing := [name for name, attack in rows.items() if attack.white_box]:
        raise InputError(
            f"evaluate is about an attacker who can only query, and {seeing[0]} is told gradients: leave it out, or "
            "run it beside the others with compare"
        )
    settings.setdefault("scores", None)
    return Evaluation(tuple(rows), launch(rows, model, images, labels, eps, survivors_only=True, **settings))
