"""Tests of the paper's experiments: their files, the searches of figures 1 and 2, and `parsimon reproduce`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import refused, run
from driving import Startled, context_of, converse, linear_loss, random_image, smooth_loss
from driving import run as run_on_engine
from parsimon import Threat, runs
from parsimon.attacks import PGD, Parsimonious
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Engine
from parsimon.core.grid import first_grid
from parsimon.errors import InputError
from parsimon.experiments import exhibit, exhibits
from parsimon.experiments.reproduce import reproduce
from parsimon.experiments.surrogate import Climb, OverPixels, climb
from parsimon.experiments.views import label

# --- what is written down -------------------------------------------------------------------------------------------

# Typed from the paper a second time: success, mean, median, mean on NES's successes.
PRINTED = {
    "cifar10": "48.0 1261 356 247 / 38.6 1877 459 520 / 29.5 2872 900 2872 / 47.2 20 - -",
    "imagenet-0.05": "98.5 722 237 376 / 94.9 1030 286 603 / 80.3 1660 900 1660 / 99.9 20 - - / 77.8 1735 - 1735 / "
    "95.4 1117 - 703",
    "imagenet-0.03": "95.9 1129 420 537 / 91.3 1382 520 774 / 74.8 2049 1200 2049 / 99.9 20 - -",
    "imagenet-0.01": "81.3 2141 1249 852 / 72.4 2318 1374 1052 / 48.2 3598 3000 3598 / 99.5 20 - -",
    "imagenet-targeted": "99.9 7485 5373 7371 / 92.3 26421 18642 26421 / 99.7 16284 12650 16284 / 100 200 - - / "
    "99.2 - 11550 -",
    "nes-momentum": "99.2 16977 13375 - / 99.7 16284 12650 - / 99.8 16725 13525 -",
    "bandits-targeted": "91.8 29020 - - / 92.3 26421 - - / 90.7 26310 - - / 91.5 26742 - - / 90.3 26891 - - / "
    "92.1 29931 - - / 91.0 26425 - - / 91.0 26912 - - / 90.9 27182 - - / 90.8 27436 - - / "
    "89.9 30412 - - / 89.8 28359 - - / 89.5 28392 - - / 89.2 28615 - - / 89.3 29065 - - / "
    "87.8 33987 - - / 85.4 31363 - - / 85.2 32292 - - / 85.9 32001 - - / 85.2 33499 - -",
}
PLANNED = {planned.name: planned for each in exhibits().values() for planned in each.runs}


@pytest.mark.parametrize("name", PRINTED)
def test_the_numbers_are_those_that_the_paper_prints(name: str) -> None:
    rows = [row.split() for row in PRINTED[name].split(" / ")]
    printed = [tuple(None if number == "-" else float(number) for number in row) for row in rows]
    assert [*PLANNED[name].paper, *PLANNED[name].reported.values()] == printed


def test_every_table_and_figure_with_results_is_there() -> None:
    tables, curves = [f"table{number}" for number in range(1, 5)], ["figure5a", "figure5b", "figure5c", "figure6"]
    others = ["figure1", "figure2", "figure3", "figure7", "supplement-b3", "supplement-c", "supplement-d"]
    assert sorted(exhibits()) == sorted([*tables, *curves, *others])


@pytest.mark.parametrize(
    ("name", "images", "budget", "eps", "targets"),
    [
        ("cifar10", 1000, 20000, 8 / 255, None),
        ("imagenet-0.05", 10000, 10000, 0.05, None),
        ("imagenet-0.03", 10000, 10000, 0.03, None),
        ("imagenet-0.01", 10000, 10000, 0.01, None),
        ("imagenet-targeted", 1000, 100000, 0.05, "random"),
        ("nes-momentum", 1000, 100000, 0.05, "random"),
        ("bandits-targeted", 1000, 100000, 0.05, "random"),
        ("sensitivity", 10000, 10000, 0.05, None),
    ],
)
def test_the_protocol_is_the_papers(name: str, images: int, budget: int, eps: float, targets: str | None) -> None:
    spec = PLANNED[name].protocol
    assert (spec.images, spec.budget, spec.radius, spec.targets) == (images, budget, eps, targets)


def test_the_sweep_is_every_combination_of_the_papers_settings() -> None:
    attacks: list[Any] = [parse_attack(text) for text in PLANNED["sensitivity"].spec.attacks]
    blocks = [attack.block for attack in attacks[:3]]
    swept = {(attack.exploration, attack.probe, attack.tile) for attack in attacks[3:]}
    assert blocks == [32, 64, 128]
    assert swept == set(itertools.product((0.1, 1, 10), (0.01, 0.1, 1), (25, 50, 100)))
    assert all(first_grid((3, 299, 299), block).noise == (256, 256) for block in blocks)
    assert {(attack.online_step, attack.step) for attack in attacks[3:]} == {(100, 0.01)}


def test_the_estimated_queries_follow_from_the_papers_results() -> None:
    """A success takes its queries, a failure the whole budget."""
    for planned in PLANNED.values():
        shares = [(each.success or 0) / 100 for each in planned.paper]
        if not all(shares):  # of a sweep the paper reports no numbers
            continue
        means = [float(each.mean or 0) for each in planned.paper]
        budget = planned.protocol.budget
        of_image = sum(share * mean + (1 - share) * budget for share, mean in zip(shares, means, strict=True))
        of_pgd = sum(mean for mean in means if mean in (20, 200))
        assert isinstance(planned.protocol.images, int)
        if of_pgd:  # its failures end after its steps
            of_image -= (1 - shares[-1]) * budget
        assert planned.queries == pytest.approx(of_image * planned.protocol.images, rel=0.1)


def test_an_unknown_exhibit_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(InputError, match=r"no exhibit 'table9': did you mean table\d\? It has table1, .*supplement-d"):
        exhibit("table9")


def test_a_rows_label_leaves_out_the_preset() -> None:
    assert label("NES:imagenet-0.05") == "NES"
    assert label("Bandits:imagenet-targeted,online_step=1,step=0.05") == "Bandits, online_step=1, step=0.05"
    assert label("Local search") == "Local search"


# --- searches that climb --------------------------------------------------------------------------------------------

SHAPE = (1, 2, 3)


def highest_corner(image: Any, loss: Any, eps: float) -> float:
    """By brute force."""
    signs = itertools.product((-1, 1), repeat=image.size)
    return max(
        float(loss(image + np.float32(eps) * np.reshape(each, image.shape).astype(np.float32))) for each in signs
    )


@pytest.mark.parametrize("local", [False, True])
def test_over_pixels_both_searches_find_the_best_corner_of_a_linear_loss(local: bool) -> None:
    image = random_image(SHAPE, margin=0.2)
    loss = linear_loss(np.random.default_rng(1).normal(size=SHAPE))
    exchanges = converse(OverPixels(local), context_of(image), loss, asks=1000)
    found = max(each.losses.max() for each in exchanges)
    assert found == pytest.approx(highest_corner(image, loss, 0.1), rel=1e-6)


def test_local_search_over_pixels_ends_where_no_flip_of_one_pixel_helps() -> None:
    for seed in range(20):
        image = random_image(SHAPE, seed, margin=0.45)
        loss = smooth_loss(SHAPE, seed)
        asked = converse(OverPixels(local=True), context_of(image, eps=0.4), loss, asks=1000)
        images = np.concatenate([each.images for each in asked])
        losses = np.concatenate([each.losses for each in asked])
        best = images[losses.argmax()]
        for place in np.ndindex(*SHAPE):
            flipped = best.copy()
            flipped[place] = 2 * image[place] - best[place]
            assert loss(flipped) <= losses.max() + 1e-5
        greedy = converse(OverPixels(local=False), context_of(image, eps=0.4), loss, asks=1000)
        assert losses.max() >= max(each.losses.max() for each in greedy)


def test_climb_continues_after_a_success_and_keeps_the_highest_point() -> None:
    image = random_image(SHAPE, margin=0.2)
    attack = Parsimonious(block=1)
    plain = run_on_engine(attack, Startled(image), image, Threat(0.1), budget=500)
    assert (plain.success, plain.queries) == (True, 1)
    climb, model = Climb(attack), Startled(image)
    outcome = run_on_engine(climb, model, image, Threat(0.1), budget=500)
    assert outcome.ended == "exhausted"
    assert outcome.queries == len(model.shown) > 10
    scores = Startled(image)(np.stack(model.shown))
    losses = np.logaddexp(0, scores[:, 1] - scores[:, 0])
    best = climb.best[0]
    assert best.loss == pytest.approx(losses.max())
    members = best.point.members.reshape(2, 3, 1).transpose(2, 0, 1)  # type: ignore[union-attr]
    expected = np.where(members, image + np.float32(0.1), image - np.float32(0.1))
    np.testing.assert_allclose(expected, model.shown[int(losses.argmax())], atol=1e-6)


def test_climb_receives_gradients_if_its_attack_does() -> None:
    assert Climb(PGD()).white_box
    assert not Climb(Parsimonious()).white_box


# --- the command ----------------------------------------------------------------------------------------------------

# A network that anyone can run: which third of the image is the brightest? Coarse blocks fool it within a few queries.
MODULE = """
import pathlib
import torch

class Thirds(torch.nn.Module):
    def forward(self, images):
        return 100 * torch.stack([part.mean((1, 2, 3)) for part in torch.tensor_split(images, 3, 2)], 1)

def counted():
    network = Thirds()
    def model(images):
        with pathlib.Path("shown").open("a") as file:
            file.write(f"{len(images)} ")
        return network(torch.from_numpy(images)).numpy()
    return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user works: the network, and images of two sizes with their labels."""
    path = tmp_path_factory.mktemp("user")
    (path / "thirds.py").write_text(MODULE)
    labels = np.array([0, 1, 2, 1])
    for name, side in (("large", 129), ("small", 9)):
        images = np.random.default_rng(0).uniform(0.3, 0.7, (4, 3, side, side)).astype(np.float32)
        for image, third in zip(images, labels, strict=True):
            image[:, third * side // 3 : (third + 1) * side // 3] += 0.02
        np.savez(path / f"{name}.npz", images=images, labels=labels)
    return path


SCALE: dict[str, Any] = {"images": 2, "budget": 60, "batch_size": 8}


@pytest.mark.parametrize("name", exhibits())
def test_every_exhibit_is_made_at_a_small_scale(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    shown = exhibit(name)
    size = "small" if shown.climbs else "large"
    budget = 120 if name == "figure3" else 60  # it shows adversarial images, so one must be found
    done = reproduce(
        shown, folder / "paper", {**SCALE, "budget": budget, "model": "thirds:Thirds", "data": f"{size}.npz"}
    )
    assert done is not None
    assert done.folder == folder / "paper" / f"{name}-2-images-{budget}-queries"
    text = (done.folder / "table.md").read_text()
    for planned in shown.runs:
        assert planned.title in text
        for row in planned.paper:
            numbers = [f"{row.success:.1f}%" if row.success else "", *(f"{each:,g}" for each in row[1:] if each)]
            assert all(number in text for number in numbers)
        assert all(f"| {source} " in text for source in planned.reported)
    assert "\\begin{tabular}" in (done.folder / "table.tex").read_text()
    figures = [file for file in done.folder.iterdir() if file.suffix in (".pdf", ".png")]
    assert len(figures) == 2 * len(done.view.figures)
    assert bool(figures) == (shown.shows != "table")
    assert all(file.stat().st_size > 4000 for file in figures)
    for table in done.view.tables:
        lines = str(table).splitlines()
        assert max(map(len, lines)) <= 80
        assert any(line.startswith(("Parsimonious ", "Bandits, ", "NES", "-8 ", "Local search ")) for line in lines)


def test_ours_are_the_numbers_of_the_stored_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    done = reproduce(
        exhibit("table1"),
        folder / "one",
        {**SCALE, "images": 3, "budget": 120, "model": "thirds:Thirds", "data": "large.npz"},
    )
    assert done is not None
    (stored,) = (folder / "one" / "runs").iterdir()
    comparison = runs.load(stored)
    cells = {row[0].text: row for group in done.view.tables[0].groups for row in group}
    for name, result in comparison.results.items():
        summary = result.summary
        assert cells[label(name)][1].text == f"{summary.success_rate:.1%}"
        if summary.mean is not None:
            assert cells[label(name)][3].text == f"{summary.mean:.1f}"


def test_the_command_continues_a_stored_run_without_repeating_queries(folder: Path) -> None:
    def shown() -> int:
        return sum(map(int, (folder / "shown").read_text().split()))

    options = ["--model", "thirds:counted", "--data", "large.npz", "--images", "3", "--budget", "60", "--out", "again"]
    command = ["reproduce", "supplement-b3", *options]
    ran = run(folder, *command)
    assert ran.returncode == 0, ran.stderr
    assert "NES, momentum=0.5" in ran.stdout
    assert "Supplement B.3" in ran.stderr
    before = shown()
    assert run(folder, *command).returncode == 0
    assert shown() - before < 30 < before  # the images are classified again, and that is all


def test_without_a_name_the_exhibits_are_listed_with_their_queries(folder: Path) -> None:
    ran = run(folder, "reproduce")
    assert ran.returncode == 0
    for name, each in exhibits().items():
        assert name in ran.stdout
        assert f"{sum(planned.queries for planned in each.runs):,}" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_missing_entries_are_reported_before_any_run(folder: Path) -> None:
    ran = run(folder, "reproduce", "table2", PARSIMON_HOME=str(folder / "empty"))
    assert "parsimon zoo install" in refused(ran)
    assert "no exhibit 'table9'" in refused(run(folder, "reproduce", "table9"))


@pytest.mark.parametrize("name", ["figure1", "figure2"])
def test_figures_of_highest_losses_are_stored_and_continued(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    small = {**SCALE, "budget": 40, "model": "thirds:Thirds", "data": "small.npz"}
    first = reproduce(exhibit(name), folder / "climbs", small)
    monkeypatch.setattr(Engine, "_report", None)  # a second run that queried the model would fail
    again = reproduce(exhibit(name), folder / "climbs", small)
    assert first is not None
    assert again is not None
    assert [str(table) for table in again.view.tables] == [str(table) for table in first.view.tables]
    assert any("at most 40 queries" in table.notes[0] for table in first.view.tables) == (name == "figure2")


def test_a_search_that_stops_halfway_continues_to_the_same_best_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    spec = exhibit("figure2").runs[0].spec.replace(**{**SCALE, "model": "thirds:Thirds", "data": "small.npz"})
    attacks = {"Greedy": OverPixels(local=False), "Local": OverPixels(local=True)}
    data = runs.data_of(spec)
    whole = climb(spec, attacks, data, folder / "whole")
    calls = 0

    def stop(engine: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 20:
            engine.stop()
        return report(engine, *arguments)

    report = Engine._report
    monkeypatch.setattr(Engine, "_report", stop)
    cut = climb(spec, attacks, data, folder / "cut")
    assert any(outcome.ended == "interrupted" for each in cut.values() for outcome in each.result.outcomes)
    resumed = climb(spec, attacks, data, folder / "cut")
    for name, each in whole.items():
        assert resumed[name].losses.tolist() == each.losses.tolist()
        assert np.array_equal(resumed[name].perturbations(), each.perturbations())
        assert resumed[name].result.queries.tolist() == each.result.queries.tolist()
    (folder / "cut" / "best-0" / f"{whole['Greedy'].result.outcomes[0].index}.npz").unlink()
    assert climb(spec, attacks, data, folder / "cut")["Greedy"].losses.tolist() == whole["Greedy"].losses.tolist()


def test_an_exhibit_that_cannot_be_drawn_does_not_stop_the_others(folder: Path) -> None:
    options = ["--model", "thirds:Thirds", "--data", "large.npz", "--images", "2", "--budget", "1", "--out", "none"]
    ran = run(folder, "reproduce", "figure3", "table3", *options, "--quiet", "--json")
    assert ran.returncode == 2
    told = json.loads(ran.stdout)
    assert [each["name"] for each in told["exhibits"]] == ["table3"]
    assert [each["name"] for each in told["failed"]] == ["figure3"]
    assert "no image was fooled" in told["failed"][0]["error"]
    assert ran.stderr == f"error: {told['failed'][0]['error']}\n"
