"""The options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

import click

from parsimon.attacks import ATTACKS
from parsimon.cli.completion import DATA_NAMES, MODEL_NAMES
from parsimon.core.threat import Loss, Scores, Targets
from parsimon.data.named import FORMS
from parsimon.errors import check_whole
from parsimon.models.hubs import FORMS as HUB_FORMS
from parsimon.runs.config import Spec
from parsimon.runs.execute import ExecutionOptions

Function = Callable[..., None]
Decorator = Callable[[Function], Function]


class _Count(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A whole number, or `all`."""

    name = "integer or all"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "all":
            return value
        count = click.INT.convert(value, parameter, context)
        check_whole("images", count, 1)
        return count


class PathName(click.Path):
    """The path of a file or folder. It is not empty, as that of a shell variable that is not set would be."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "" or "\0" in str(value):
            self.fail("a path must not be empty, and have no NUL character.", parameter, context)
        return super().convert(value, parameter, context)


def choice(literal: Any) -> click.Choice[str]:
    return click.Choice(get_args(literal))


SCORES = click.option(
    "--scores", type=choice(Scores), default="logits", show_default=True, help="What the model returns."
)
DATA = click.option(
    "--data",
    default=Spec.data,
    show_default=True,
    shell_complete=DATA_NAMES,
    help="; ".join(f"{form}: {what}" for form, what in FORMS.items()) + ".",
)
MODEL = click.option(
    "--model",
    default="robust",
    show_default=True,
    shell_complete=MODEL_NAMES,
    help="A bundled network (robust, standard), one of `parsimon zoo`, the path of an ONNX file, a model of a hub "
    f"({', '.join(HUB_FORMS)}), "
    "grpc://HOST:PORT/MODEL or http://HOST:PORT/v2/models/MODEL for one behind an inference server, or "
    "package.module:function, a function without arguments that returns a torch module or a function of numpy images.",
)
PREPROCESS = click.option(
    "--preprocess",
    help="For pictures: resize=256,crop=224,interpolation=bicubic, as the model's card says. "
    "[default: what the card says, of a network of `parsimon zoo`; what its config says, of one of hf: and timm:]",
)
BATCH_SIZE = click.option(
    "--batch-size", type=int, help="Images in a batch. [default: 256; on a CPU, 64 to 512 by the number of images]"
)
HOW_TO_ATTACK = (
    MODEL,
    DATA,
    PREPROCESS,
    SCORES,
    click.option(
        "--images",
        type=_Count(),
        default=Spec.images,
        show_default=True,
        help="Attack the first so many that are classified right, or `all` of these.",
    ),
    click.option("--sample", type=int, help="Attack a random sample of them instead, with this seed."),
    click.option(
        "--eps",
        metavar="RADIUS",
        default=Spec.eps,
        show_default=True,
        help="Radius of the L-infinity ball, for images in [0, 1]: a number or a fraction.",
    ),
    click.option("--budget", default=Spec.budget, show_default=True, help="Queries allowed for each image."),
    click.option(
        "--targets",
        type=choice(Targets),
        help="Reach a class instead of leaving the true one: the one after it, or one drawn for each image.",
    ),
    click.option("--loss", type=choice(Loss), help="The loss to climb. [default: the attack's own]"),
    click.option("--eight-bit", is_flag=True, help="Show the model only images whose pixels are k / 255."),
    click.option("--seed", default=Spec.seed, show_default=True),
    BATCH_SIZE,
    click.option(
        "--out",
        type=PathName(),
        help="Folder for the run and what is made of it. [default: a new one in parsimon-results]",
    ),
)
MEANS = (
    click.option("--in-flight", type=int, help="Images attacked at once; sets the memory used. [default: 256 or more]"),
    click.option(
        "--workers",
        type=int,
        help="Spread the work over so many processes, of one thread each. [default: none; with --ray one for each GPU, "
        "or for each core if there is none]",
    ),
    click.option(
        "--ray", metavar="ADDRESS", help="Have the workers on a Ray cluster; `local`: on one that is started here."
    ),
    click.option(
        "--verify/--no-verify",
        default=True,
        show_default=True,
        help="Query every adversarial image once more at the end, uncharged, and report how many hold.",
    ),
)
DOWNLOAD = click.option("--download", is_flag=True, help="Install first what of `parsimon zoo` is named and missing.")
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex"]),
    default="text",
    show_default=True,
    help="What to print; a run writes Markdown and LaTeX to files in any case.",
)
ATTACK_HELP = (
    f"{', '.join(ATTACKS)}; with a published experiment's settings after a colon (bandits:imagenet-0.05), and settings "
    "of your own after commas (nes,samples=50,strict=true)."
)


def means_of(settings: dict[str, Any]) -> ExecutionOptions:
    """What of the given options is not about the run itself; it is taken out of them."""
    return cast(
        "ExecutionOptions", {name: settings.pop(name) for name in ExecutionOptions.__annotations__ if name in settings}
    )


def options(*options: Decorator) -> Decorator:
    """A command with all of these."""

    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
