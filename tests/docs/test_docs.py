"""The code in the documentation runs, its commands exist, and what is made from code is what the code makes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import benchmark_tables
import command_line
import defence_tables
import interval_tables
import llms
import offline
import outputs
import parsimon
import published_numbers
import settings_tables
from parsimon import zoo
from parsimon.attacks import ATTACKS
from parsimon.cli.commands import command
from parsimon.defences import DEFENCES
from parsimon.runs.config import DEFAULTS, RunConfig
from parsimon.runs.evaluation import EvaluationConfig

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Python that is shown but not run. Everything else is fenced as `python`, and runs.
NOT_RUN = {
    ("server.md", "serve.py"): "Triton's own environment; `make test-servers` runs such a server",
    ("workers.md", "workers=2"): "begins processes that import the file it is in; tests/test_workers.py does it",
    ("imagenet.md", "torchvision"): "downloads a network of 100 MB",
}


def fenced(page: Path, *kinds: str) -> list[str]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [block for kind, block in found if kind in kinds]


PEERS = [page for page in PAGES if page.name.startswith("from-")]  # whose code is scripts of other libraries
SHOWN = outputs.pages()  # whose code is run with the output beside it


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if fenced(page, "python") and page not in (*PEERS, *SHOWN)],
    ids=lambda page: page.name,
)
def test_python_blocks_run_one_after_another(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images, labels = (array[:4] for array in zoo.images())
    names: dict[str, Any] = {"model": zoo.path("standard"), "images": images, "labels": labels}
    for block in fenced(page, "python"):
        exec(compile(re.sub(r"budget=[\d_]+", "budget=20", block), str(page), "exec"), names)


def test_the_code_about_set_functions_finds_the_best_set() -> None:
    names: dict[str, Any] = {}
    for block in fenced(ROOT / "docs" / "guides" / "set-functions.md", "python"):
        exec(compile(block, "set-functions.md", "exec"), names)
    assert np.flatnonzero(names["found"].members).tolist() == [0, 2]


@pytest.mark.parametrize("page", PEERS, ids=lambda page: page.name)
def test_a_script_of_another_library_works_when_the_shown_lines_are_changed(page: Path) -> None:
    """Theirs runs; ours runs with at most three lines changed, and finds what `parsimon.attack` finds."""
    pytest.importorskip(page.stem.removeprefix("from-"))
    before, *further = fenced(page, "python")
    (changes,) = fenced(page, "diff")
    lines = changes.splitlines()
    removed, added = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
    assert len(removed) == len(added) <= 3
    after = before
    for old, new in zip(removed, added, strict=True):
        assert after.splitlines().count(old) == 1
        after = after.replace(old, new)

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10)).eval()
    images = zoo.images()[0][:6]
    labels = module(torch.from_numpy(images)).argmax(dim=1).numpy()
    for script in (before, after):
        script = re.sub(r"(budget|max_iter|n_queries)=[\d_]+", r"\1=20", script)
        tensors = {"images": torch.from_numpy(images), "labels": torch.from_numpy(labels)}
        names: dict[str, Any] = {"model": module, "x": images, "y": labels, **tensors}
        exec(compile(script, str(page), "exec"), names)
    for block in further:
        exec(compile(re.sub(r"budget=[\d_]+", "budget=20", block), str(page), "exec"), names)

    attack = names["attack"]
    found = attack.results[-1] if hasattr(attack, "results") else attack.result
    expected = parsimon.attack(module, images, labels, 8 / 255, attack=found.attack, budget=20)
    assert type(attack).__module__.startswith("parsimon.adapters")
    assert found.outcomes == expected.outcomes


def test_python_that_is_not_run_is_python_and_has_a_reason() -> None:
    shown = [(page.name, block) for page in PAGES for block in fenced(page, "py")]
    for name, block in shown:
        compile(block, name, "exec")
    reasons = [next((key for key in NOT_RUN if key[0] == name), None) for name, _ in shown]
    assert None not in reasons
    assert sorted(key for key in reasons if key) == sorted(NOT_RUN)


def commands(page: Path) -> Iterator[list[str]]:
    """What the page has the reader type, from `parsimon` on."""
    for block in fenced(page, "console"):
        for typed in re.findall(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)", block, flags=re.MULTILINE):
            lexer = shlex.shlex(typed.replace("\\\n", " "), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
            while words and words[0] in ("until", "!"):
                del words[0]
            if words[:1] == ["parsimon"]:
                yield list(takewhile(lambda word: not set(word) <= set("();<>|&"), words[1:]))


TYPED = [(page.name, words) for page in PAGES for words in commands(page)]


def test_there_are_commands_to_look_at() -> None:
    assert {words[0] for _, words in TYPED} >= set(command.commands)


@pytest.mark.parametrize(
    ("page", "words"), TYPED, ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_commands_are_understood(page: str, words: list[str]) -> None:
    """The real command takes the names, options and values; it is not run."""
    each: click.Command = command
    while isinstance(each, click.Group) and words:
        assert words[0] in each.commands, f"{page} has {words}"
        each, words = each.commands[words[0]], words[1:]
    # Under its parent: click remembers with a command how its help is asked for.
    parsed = each.make_context(each.name, list(words), click.Context(command, **command.context_settings))
    settings = {name: value for name, value in parsed.params.items() if name in RunConfig.__struct_fields__}
    if each.name == "evaluate":
        EvaluationConfig(eps=parsed.params["eps"], budget=parsed.params["budget"])
    elif "eps" in settings:  # as run and compare would
        attacks = parsed.params.get("attacks") or (parsed.params.get("attack"),)
        RunConfig(**{**settings, "attacks": tuple(name for name in attacks if name) or DEFAULTS.attacks})


@pytest.mark.parametrize("words", [["zoo"], ["zoo", "show", "resnet-50"], ["reproduce"]], ids=" ".join)
def test_commands_that_cost_nothing_run(words: list[str]) -> None:
    assert words in [typed for _, typed in TYPED]
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("page", [page for page in PAGES if fenced(page, "toml")], ids=lambda page: page.name)
def test_specs_can_be_read(page: Path, tmp_path: Path) -> None:
    for block in fenced(page, "toml"):
        path = tmp_path / "spec.toml"
        path.write_text(block)
        assert RunConfig.read(path).attacks


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in navigation


def test_the_page_of_attacks_names_every_attack_and_every_preset() -> None:
    page = (ROOT / "docs" / "attacks.md").read_text()
    for name, attack in ATTACKS.items():
        for word in (name, attack.__name__, *attack.presets):
            assert f"`{word}`" in page


def test_pages_that_are_made_from_code_are_up_to_date() -> None:
    """`make pages` writes them."""
    assert command_line.PAGE.read_text() == command_line.page()
    assert published_numbers.PAGE.read_text() == published_numbers.page(published_numbers.read())
    assert defence_tables.PAGE.read_text() == defence_tables.page()
    assert interval_tables.PAGE.read_text() == interval_tables.page()
    assert llms.PAGE.read_text() == llms.page()
    for tables in (benchmark_tables, settings_tables):
        for page in tables.PAGES:
            assert page.read_text() == tables.page(page)


def test_the_page_of_defences_names_every_defence() -> None:
    page = defence_tables.PAGE.read_text()
    assert all(f"`{name}`" in page for name in DEFENCES)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ("a.html", '<link rel="preconnect" href="//fonts.example">', ["//fonts.example"]),
        ("a.html", '<img srcset="a.png 1x, https://e.example/b.png 2x">', ["https://e.example/b.png 2x"]),
        ("a.html", "<style>@import 'https://e.example/a.css';</style>", ["https://e.example/a.css"]),
        ("a.css", "p { background: url(//e.example/a.png) }", ["//e.example/a.png"]),
        (
            "a.html",
            '<a href="https://example.org">a</a><link rel="canonical" href="https://x.example"><img src="a.png">',
            [],
        ),
    ],
)
def test_what_a_site_loads_from_elsewhere_is_found(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    (tmp_path / name).write_text(text)
    assert offline.loads(tmp_path / name) == found
    if found:
        with pytest.raises(SystemExit, match="must work offline"):
            offline.main(tmp_path)
    else:
        offline.main(tmp_path)
