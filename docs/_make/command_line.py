"""Write docs/reference/command.md: usage, description, examples and options of every command, from click's objects.

python docs/_make/command_line.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill

import click

from parsimon.attacks import ATTACKS
from parsimon.cli.commands import command
from parsimon.cli.options import GroupedCommand
from parsimon.cli.output import EXIT_CODES
from parsimon.data.named import FORMS
from parsimon.models.hubs import FORMS as HUB_FORMS

PAGE = Path(__file__).parents[1] / "reference" / "command.md"

_HEAD = """\
# The command line

Every command, with its options and their defaults. `parsimon COMMAND --help` prints the same in a terminal.

Every command also has `--help` and `--json`, which prints one JSON document for scripts:
[Use it in scripts](../guides/scripts.md). Tab completion for a shell: [`parsimon completion`](#parsimon-completion).
"""
_MODELS = {
    "robust, standard": "a bundled network for CIFAR-10, with adversarial or standard training",
    "NAME": "another network of the [zoo](../guides/zoo.md)",
    "FILE.onnx": "an ONNX file",
    **HUB_FORMS,
    "package.module:function": "a function without arguments that returns a torch module or a function of numpy images",
    "grpc://HOST:PORT/MODEL": "a model behind an [inference server](../guides/server.md)",
    "http://HOST:PORT/v2/models/MODEL": "the same over HTTP",
}
_GUIDES = {
    "evaluate": "evaluate.md",
    "run": "stored-runs.md",
    "compare": "compare.md",
    "defend": "defences.md",
    "resume": "stored-runs.md",
    "show": "stored-runs.md",
    "view": "live-page.md",
    "report": "report.md",
    "plot": "figures.md",
    "reproduce": "reproduce.md",
    "zoo": "zoo.md",
    "check": "your-own-model.md",
    "diff": "ci-gate.md",
    "verify": "verify.md",
    "export": "report.md",
    "attacks": "choose.md",
    "defences": "defences.md",
    "init": "stored-runs.md",
}
_IN_EVERY = {"--json", "--help"}
_LONG = {  # how long explanations start and end, and a link that replaces them
    "data": ("bundled: ", ".", "Name of the images and labels: see [Data](#data)."),
    "model": ("A bundled network", "numpy images.", "Name of the model: see [Models](#models)."),
    "attack": (", ".join(ATTACKS), ";", "Name of an [attack](../attacks.md),"),
    "attacks": (", ".join(ATTACKS), ";", "Name of an [attack](../attacks.md),"),
}
_DEFAULT = re.compile(r"\s*\[default: (?P<default>.*?)\]")
_WIDEST_DEFAULT = 40  # characters; a longer one is a sentence of the meaning


def page() -> str:
    """Return the whole page."""
    context = click.Context(command, info_name="parsimon", **command.context_settings)
    parts = [_HEAD, *_contents(), *_exit_codes(), *_forms("Models", _MODELS), *_forms("Data", FORMS)]
    for name, child in command.commands.items():
        parts += _sections(child, click.Context(child, info_name=name, parent=context))
    return "\n".join(parts).rstrip() + "\n"


def _contents() -> Iterator[str]:
    yield from ("| command | what it does |", "|---|---|")
    for name, child in command.commands.items():
        summary = _cell(re.split(r"(?<=[.?]) ", _description(child)[0])[0])
        yield f"| [`{name}`](#parsimon-{name}) | {summary} |"
    yield ""


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning |", "|--:|---|")
    for code, meaning in re.findall(r"^ +(\d+)  (.*)$", EXIT_CODES, flags=re.MULTILINE):
        yield f"| {code} | {_cell(meaning)} |"
    yield ""


def _forms(title: str, forms: dict[str, str]) -> Iterator[str]:
    yield from (f"## {title}", "", "| form | meaning |", "|---|---|")
    for form, meaning in forms.items():
        yield f"| {', '.join(f'`{each}`' for each in form.split(', '))} | {_cell(meaning)} |"
    yield ""


def _sections(each: click.Command, context: click.Context) -> Iterator[str]:
    paragraphs, examples = _description(each), _examples(each)
    yield from (f"## {context.command_path}", "", "```text", _usage(each, context), "```", "")
    for paragraph in paragraphs:
        yield from (fill(_prose(paragraph), 120, break_long_words=False, break_on_hyphens=False), "")
    if examples:
        yield from ("```console", *(f"$ {line}" for line in examples), "```", "")
    if guide := _GUIDES.get(each.name or ""):
        yield from (f"See also the [guide](../guides/{guide}).", "")
    if isinstance(each, GroupedCommand):
        for heading, options in each.grouped_options(context).items():
            yield from _table(options, context, heading)
    else:
        yield from _table((one for one in each.get_params(context) if isinstance(one, click.Option)), context)
    if isinstance(each, click.Group):
        for name, child in each.commands.items():
            yield from _sections(child, click.Context(child, info_name=name, parent=context))


def _usage(each: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *each.collect_usage_pieces(context)])


def _description(each: click.Command) -> list[str]:
    """Return the paragraphs of a command's help, without its examples."""
    blocks = inspect.cleandoc(each.help or "").split("\n\n")
    return [_DEFAULT.sub(r" Default: \g<default>.", " ".join(block.split())) for block in blocks if block[0] != "\b"]


def _examples(each: click.Command) -> list[str]:
    blocks = inspect.cleandoc(each.help or "").split("\n\n")
    return [line.strip() for block in blocks if block.startswith("\b") for line in block.splitlines()[1:]]


def _table(options: Iterable[click.Option], context: click.Context, heading: str = "Options") -> Iterator[str]:
    shown = [each for each in options if not _IN_EVERY & {*each.opts}]
    if not shown:
        return
    yield from (f"**{heading}**", "", "| option | default | meaning |", "|---|---|---|")
    for each in shown:
        default, meaning = _default_and_meaning(each)
        yield f"| {_name(each, context)} | {default} | {_cell(meaning)} |"
    yield ""


def _name(each: click.Option, context: click.Context) -> str:
    if each.is_flag:
        return ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
    value = "CHOICE" if isinstance(each.type, click.Choice) else each.make_metavar(context).removesuffix(" RANGE")
    return f"`{each.opts[0]} {value}`"


def _default_and_meaning(each: click.Option) -> tuple[str, str]:
    text = " ".join((each.help or "").split())
    stated = _DEFAULT.search(text)
    meaning = _DEFAULT.sub("", text)
    default = stated["default"] if stated else ""
    if re.fullmatch(r"[\d.]+", default):
        default = f"`{default}`"
    if not default and each.show_default and not each.is_flag:
        value = each.default
        default = f"`{', '.join(map(str, value)) if isinstance(value, tuple) else value}`"
    if each.name in _LONG:
        start, end, link = _LONG[each.name]
        meaning = re.sub(f"^{re.escape(start)}.*?{re.escape(end)}(?= |$)", link, meaning)
    if isinstance(each.type, click.Choice):
        *others, last = (f"`{choice}`" for choice in each.type.choices)
        meaning += f" {', '.join(others)} or {last}."
    if isinstance(each.type, click.IntRange | click.FloatRange):
        meaning += _range(each.type)
    if len(default) > _WIDEST_DEFAULT:
        meaning, default = f"{meaning} Default: {default}.", ""
    return _cell(default), meaning


def _range(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is not None and kind.max is not None:
        return f" From {kind.min} to {kind.max}."
    return f" At least {kind.min}." if kind.min is not None else ""


def _prose(text: str) -> str:
    """Mark options as code."""
    return re.sub(r"(?<![`\w-])--[a-z][\w-]*(?![\w`-])", lambda found: f"`{found[0]}`", text)


def _cell(text: str) -> str:
    return _prose(text).replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page())
