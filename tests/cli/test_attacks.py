"""`parsimon attacks` lists every attack, and describes one."""

from __future__ import annotations

import json

from click.testing import CliRunner

from parsimon.attacks import ATTACKS
from parsimon.cli.commands import command


def test_the_list_names_every_attack_with_its_need_and_paper() -> None:
    listed = CliRunner().invoke(command, ["attacks"], env={"COLUMNS": "120"}).output
    for name, attack in ATTACKS.items():
        (line,) = (line for line in listed.splitlines() if line.split()[:1] == [name])
        assert attack.needs in line
        assert attack.paper is None or attack.paper.authors.split(",")[0].split()[0] in line


def test_the_list_says_what_a_need_means() -> None:
    listed = " ".join(CliRunner().invoke(command, ["attacks"], env={"COLUMNS": "50"}).output.split())
    for attack in ATTACKS.values():
        assert f" {attack.needs}: " in listed


def test_one_attack_is_described_with_its_settings_presets_and_link() -> None:
    text = " ".join(CliRunner().invoke(command, ["attacks", "nes"]).output.split())
    for words in (
        "Needs the loss of each query: one number, which parsimon computes from logits or probabilities.",
        "L-infinity",
        "arxiv.org/abs/1804.08598",
        "samples=100 (whole number)",
    ):
        assert words in text
    assert "Probes per gradient estimate" in text
    assert "Preset nes:imagenet-targeted: samples=50, momentum=0.7" in text


def test_the_json_of_the_list_is_that_of_each() -> None:
    every = json.loads(CliRunner().invoke(command, ["attacks", "--json"]).output)["attacks"]
    assert [each["name"] for each in every] == [*ATTACKS]
    assert json.loads(CliRunner().invoke(command, ["attacks", "square", "--json"]).output) in every
