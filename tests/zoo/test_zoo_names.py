"""Tests of the zoo's names: location, missing entries, cards, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from parsimon import InputError, zoo
from parsimon.catalogue import entries as catalogue
from parsimon.cli import commands
from parsimon.data import open_data


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed."""
    monkeypatch.setenv("PARSIMON_HOME", str(tmp_path / "home"))


# --- names ----------------------------------------------------------------------------------------------------------


def test_the_first_variable_that_is_set_names_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    monkeypatch.setenv("PARSIMON_HOME", "~/zoo")
    monkeypatch.setenv("HOME", "/home/me")
    assert catalogue.home() == Path("/home/me/zoo")
    monkeypatch.delenv("PARSIMON_HOME")
    assert catalogue.home() == Path("/caches/parsimon")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert catalogue.home() == Path("/home/me/.cache/parsimon")


def test_missing_entries_are_named_with_their_size() -> None:
    both = ["resnet-50", "imagenet-samples"]
    size = 95128781 + 1677112 + 12319113
    with pytest.raises(InputError) as caught:
        zoo.ensure(["standard", *both, "images.npz"], download=False)
    assert str(caught.value) == (
        "resnet-50 and imagenet-samples are not installed: parsimon zoo install resnet-50 imagenet-samples "
        f"(downloads {size / 1e6:.0f} MB)"
    )
    with pytest.raises(
        InputError, match=r"^cifar10 is not installed: parsimon zoo install cifar10 \(downloads 139 MB\)$"
    ):
        open_data("cifar10:train")
    with pytest.raises(InputError, match=r"^inception-v3 is not installed: parsimon zoo install inception-v3 \("):
        zoo.path("inception-v3")


def test_ensure_ignores_names_outside_the_zoo() -> None:
    zoo.ensure(["robust", "cifar10:/data", "named:pictures", "model.onnx", "resnet-50:build"], download=True)


def test_installed_data_are_opened_by_name() -> None:
    folder = catalogue.find("imagenet-samples").folder
    folder.mkdir(parents=True)
    Image.new("RGB", (4, 4), (255, 0, 0)).save(folder / "red_7.png")
    (folder / catalogue.CARD).write_text("{}")
    opened = open_data("imagenet-samples")
    assert (opened.name, opened.labels.tolist(), opened.images[0].shape) == ("imagenet-samples", [7], (3, 4, 4))


def test_every_card_is_complete() -> None:
    assert set(catalogue.entries()) == {
        "inception-v3",
        "resnet-50",
        "efficientnet-lite0",
        "imagenet-samples",
        "cifar10",
    }
    for name, entry in catalogue.entries().items():
        assert zoo.card(name) == entry.card
        assert entry.card["licence"]
        assert entry.card["what"]
        for package in entry.packages:
            assert len(package.sha256) == 64
            assert package.version in package.file
        if entry.is_network:
            assert entry.card["accuracy"]["at_least"] >= entry.card["accuracy"]["right"] - 1


# --- the command ----------------------------------------------------------------------------------------------------


def said(*arguments: str) -> str:
    ran = CliRunner().invoke(commands.command, ["zoo", *arguments], catch_exceptions=False, env={"COLUMNS": "80"})
    assert ran.exit_code == 0
    assert max(map(len, ran.output.splitlines())) <= 80
    return ran.output


def test_the_list_marks_installed_entries() -> None:
    assert said() == said("list")
    for name in (*zoo.networks(), "imagenet-samples", "cifar10"):
        assert name in said()
    assert "installed" not in said()
    folder = catalogue.find("cifar10").folder
    folder.mkdir(parents=True)
    (folder / catalogue.CARD).write_text("{}")
    assert said().count("installed") == 1


@pytest.mark.parametrize("name", ["robust", "resnet-50", "cifar10"])
def test_show_prints_the_card(name: str) -> None:
    ran = CliRunner().invoke(commands.command, ["zoo", "show", name])
    assert json.loads(ran.output) == zoo.card(name)


def test_an_unknown_name_raises_an_error_that_lists_the_known_ones() -> None:
    for command in ("show", "install"):
        with pytest.raises(InputError, match=r"no entry 'resnet': did you mean resnet-50\? It has .*cifar10"):
            CliRunner().invoke(commands.command, ["zoo", command, "resnet"], catch_exceptions=False)


def test_a_bundled_network_need_not_be_installed() -> None:
    assert "robust is bundled with parsimon" in said("install", "robust")


def test_a_run_with_missing_entries_says_how_to_install_them(tmp_path: Path) -> None:
    command = ["run", "--model", "resnet-50", "--data", "imagenet-samples", "--out", str(tmp_path / "results")]
    with pytest.raises(InputError, match="resnet-50 and imagenet-samples are not installed: parsimon zoo install"):
        CliRunner().invoke(commands.command, command, catch_exceptions=False)
    assert not (tmp_path / "results").exists()
