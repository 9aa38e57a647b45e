"""The options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, get_args

import click

from parsimon.attacks import ATTACKS
from parsimon.cli.completion import DATA_NAMES, MODEL_NAMES
from parsimon.cli.output import is_quiet
from parsimon.core.threat import Loss, Scores, Targets
from parsimon.data.named import FORMS
from parsimon.defences import DEFENCES
from parsimon.models.hubs import FORMS as HUB_FORMS
from parsimon.runs.config import DEFAULTS, ExecutionOptions, RunConfig

Function = Callable[..., None]
Decorator = Callable[[Function], Function]


class Count(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A whole number, or `all`."""

    name = "integer or all"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "all":
            return value
        return click.INT.convert(value, parameter, context)


# The headings of `--help`, and the options below each; an option that is not here stands below the last.
_HEADINGS = {
    "Model and data": "models model data preprocess scores images sample download",
    "Threat": "eps budget targets loss eight_bit",
    "Defences and random models": "defence flag_price stochastic repeats draws error_rate",
    "Attack": "attacks attack white_box relative_to until_budget seed",
    "Execution": "batch_size in_flight workers ray verify track dry_run price_per_1000",
    "Output": "out form fail_under gate baseline no_worse_than json quiet",
}


class GroupedCommand(click.Command):
    """A command whose help groups its many options by concern."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below their headings, in the order of the headings' lists."""
        for heading, options in self.grouped_options(context).items():
            with formatter.section(heading):
                formatter.write_dl([record for each in options if (record := each.get_help_record(context))])

    def grouped_options(self, context: click.Context) -> dict[str, list[click.Option]]:
        """Return the options by heading. Those without a heading are below the last."""
        left = {
            each.name: each for each in self.get_params(context) if isinstance(each, click.Option) and not each.hidden
        }
        grouped = {
            heading: [left.pop(name) for name in names.split() if name in left] for heading, names in _HEADINGS.items()
        }
        grouped[[*_HEADINGS][-1]] += left.values()
        return {heading: options for heading, options in grouped.items() if options}


class PathName(click.Path):
    """The path of a file or folder; not empty, as an unset shell variable would make it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "" or "\0" in str(value):
            self.fail("a path must not be empty, and have no NUL character.", parameter, context)
        return super().convert(value, parameter, context)


def choice(literal: Any) -> click.Choice[str]:
    return click.Choice(get_args(literal))


SCORES = click.option("--scores", type=choice(Scores), help="What the model returns. [default: detected]")
DATA = click.option(
    "--data",
    default=DEFAULTS.data,
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
    help="How to resize and crop pictures, such as resize=256,crop=224,interpolation=bicubic. "
    "[default: as the card of a zoo network or the configuration of an hf: or timm: model says]",
)
BATCH_SIZE = click.option(
    "--batch-size", type=int, help="Images per batch. [default: 256; on a CPU 64 to 512, by the number of images]"
)
LOSS = click.option("--loss", type=choice(Loss), help="Loss to maximise. [default: the attack's own]")
EIGHT_BIT = click.option("--eight-bit", is_flag=True, help="Show the model only images whose pixels are k / 255.")
UNTIL_BUDGET = click.option(
    "--until-budget",
    is_flag=True,
    help="Let label-only attacks continue after their success, to find closer adversarial images.",
)
DEFENCE = click.option(
    "--defence",
    multiple=True,
    callback=lambda _context, _parameter, given: given or None,
    metavar="NAME[,KEY=VALUE]",
    help=f"A defence in front of the model: {', '.join(DEFENCES)}. May be given more than once: a query passes them in "
    "this order.",
)
ALLOW_RANDOM = click.option(
    "--random",
    "stochastic",
    is_flag=True,
    help="Allow a random model. An image is fooled if the model errs in more than half of its fresh draws.",
)
RANDOM = (
    ALLOW_RANDOM,
    click.option(
        "--repeats",
        type=int,
        help="For a random model or defence: queries averaged wherever an attack would make one. [default: 1]",
    ),
    click.option(
        "--draws", type=int, help="For a random model or defence: fresh draws per image, not charged. [default: 100]"
    ),
    click.option(
        "--error-rate",
        type=float,
        help="For a random model or defence: error rate of the tests by which an attack accepts a change or ends. "
        "[default: 0.05]",
    ),
)
SEED = click.option("--seed", default=DEFAULTS.seed, show_default=True, help="Seed of the attacks' random choices.")
OUT = click.option("--out", type=PathName(), help="Folder for results. [default: a new one in parsimon-results]")
# For commands that count misclassified images against the model.
DATA_IMAGES = (
    click.option(
        "--images",
        type=Count(),
        default=DEFAULTS.images,
        show_default=True,
        help="Number of images of the data, or `all`. Misclassified ones count against the model.",
    ),
    click.option("--sample", type=int, help="Take a random sample, drawn with this seed. [default: the first ones]"),
)
EPS = click.option(
    "--eps",
    metavar="RADIUS",
    default=DEFAULTS.eps,
    show_default=True,
    help="Radius of the L-infinity ball, for images in [0, 1]: a number or a fraction.",
)
RUN = (
    MODEL,
    DATA,
    PREPROCESS,
    SCORES,
    click.option(
        "--images",
        type=Count(),
        default=DEFAULTS.images,
        show_default=True,
        help="Number of correctly classified images to attack, or `all`.",
    ),
    click.option(
        "--sample", type=int, help="Attack a random sample of them, drawn with this seed. [default: the first ones]"
    ),
    EPS,
    click.option("--budget", default=DEFAULTS.budget, show_default=True, help="Queries allowed per image."),
    click.option(
        "--targets",
        type=choice(Targets),
        help="Targeted attack: reach the class after the true one, or one drawn per image.",
    ),
    LOSS,
    EIGHT_BIT,
    DEFENCE,
    *RANDOM,
    UNTIL_BUDGET,
    SEED,
    BATCH_SIZE,
    OUT,
)
EXECUTION = (
    click.option("--in-flight", type=int, help="Images attacked at once; sets the memory used. [default: 256 or more]"),
    click.option(
        "--workers",
        type=int,
        help="Worker processes, of one thread each. [default: none; with --ray one per GPU, or else per core]",
    ),
    click.option(
        "--ray", metavar="ADDRESS", help="Address of a Ray cluster for the workers, or `local` to start one here."
    ),
    click.option(
        "--verify/--no-verify",
        default=None,
        help="Query every adversarial image once more at the end, uncharged. [default: verify]",
    ),
)
DOWNLOAD = click.option("--download", is_flag=True, help="Download missing zoo entries first.")
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex"]),
    default="text",
    show_default=True,
    help="Format to print; a run always writes Markdown and LaTeX to files.",
)
ATTACK_HELP = (
    f"{', '.join(ATTACKS)}; with the preset of a published experiment after a colon (bandits:imagenet-0.05), and "
    "settings after commas (nes,samples=50,strict=true)."
)


def take_execution(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the execution options out of a command's settings; return those that were given."""
    given = {name: settings.pop(name) for name in ExecutionOptions.__struct_fields__ if name in settings}
    given["progress"] = False if is_quiet() else None
    return {name: value for name, value in given.items() if value is not None}


def given_settings(context: click.Context, known: Collection[str] = RunConfig.__struct_fields__) -> dict[str, Any]:
    """Return the settings that are on the command line, without defaults: they replace those of a file."""
    typed = click.core.ParameterSource.COMMANDLINE
    names = [name for name in context.params if context.get_parameter_source(name) is typed]
    return {name: context.params[name] for name in names if name in known}


def options(*options: Decorator) -> Decorator:
    """Decorate a command with several options."""

    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
