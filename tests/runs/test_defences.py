"""What a defence buys: the attackers, their runs, and the tables about them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import parsimon
from parsimon import runs, zoo
from parsimon.cli.commands import command
from parsimon.core.engine import Engine
from parsimon.core.threat import Sampling
from parsimon.core.types import Task
from parsimon.defences import AAA, DEFENCES, Jpeg, parse_defence
from parsimon.errors import InputError, ModelError, NothingToAttackError, StoreError
from parsimon.models import as_model
from parsimon.results.defence import DefenceReport
from parsimon.results.result import Comparison
from parsimon.results.statistics import wilson_interval
from parsimon.runs.config import RunConfig
from parsimon.runs.defences import attackers


@pytest.fixture(scope="module")
def data() -> tuple[NDArray[Any], NDArray[Any]]:
    images, labels = zoo.images()
    return images[:8], labels[:8]


@pytest.mark.parametrize("name", DEFENCES)
def test_every_defence_has_attackers_who_know_it(name: str) -> None:
    names = [each.name for each in attackers((name,))]
    assert names[:2] == ["no defence", "unaware of it"]
    assert len(names) > 2
    assert not next(attackers((name,))).settings


def test_attackers_fit_the_defence() -> None:
    def known(*defence: str) -> set[str]:
        return {each.name for each in attackers(defence)} - {"no defence", "unaware of it"}

    assert known("noise") == known("resize-pad", "jpeg") == {"averages 8 draws", "tests changes"}
    assert known("aaa") == {"undoes it", "uses labels alone"}
    assert known("aaa:cifar10-sine") == known("round") == known("jpeg") == {"uses labels alone"}
    assert known("blacklight") == {"queries far apart"}
    assert dict(next(each for each in attackers(("round", "aaa")) if each.name == "undoes it").settings) == {
        "defence": ("round", "aaa,known=true")
    }


def test_a_setting_that_is_typed_out_can_be_undone_too() -> None:
    (undoes,) = (each for each in attackers(("aaa:cifar10,known=false",)) if each.name == "undoes it")
    (text,) = undoes.settings["defence"]
    assert parse_defence(text) == AAA.preset("cifar10", known=True)


def test_attackers_of_several_defences_know_each_of_them() -> None:
    def known(*defence: str, **given: Any) -> list[str]:
        return [each.name for each in attackers(defence, **given)][2:]

    noise = ["averages 8 draws", "tests changes"]
    assert known("noise", "blacklight") == [*noise, "queries far apart"]
    assert known("noise", "aaa") == known("aaa", stochastic=True) == [*noise, "undoes it"]
    assert known("jpeg", stochastic=True) == noise
    assert known("noise", averaged=3)[0] == "averages 3 draws"
    assert known("aaa,alpha=0") == ["uses labels alone"]
    behind = [each for each in attackers(("noise", "aaa", "blacklight")) if each.name != "no defence"]
    assert all(each.settings["stochastic"] for each in behind)
    assert known("jpeg", labels=True) == known("blacklight", labels=True) == []
    assert all(each.attacks == ("haggle", "rays") for each in attackers(("jpeg",), labels=True))


def test_who_knows_aaa_gets_the_true_margin_and_the_same_class() -> None:
    """Computed from what the defence shows alone, for any logits."""
    logits = np.random.default_rng(0).normal(0, 5, (2000, 10))
    shown = AAA().transform(logits)
    undone = AAA(known=True).transform(logits)

    def margins(scores: NDArray[Any]) -> NDArray[Any]:
        ranked = np.sort(scores, axis=1)
        difference: NDArray[Any] = ranked[:, -1] - ranked[:, -2]
        return difference

    assert np.abs(margins(shown) - margins(logits)).max() > 1
    np.testing.assert_allclose(margins(undone), margins(logits), atol=1e-3)
    assert (undone.argmax(axis=1) == logits.argmax(axis=1)).all()
    with pytest.raises(InputError, match="known=true needs shape=linear"):
        AAA(shape="sine", known=True)


def test_numbers_of_a_report_are_those_of_runs_made_one_by_one(data: tuple[NDArray[Any], NDArray[Any]]) -> None:
    images, labels = data
    report = parsimon.assess_defence("standard", images, labels, 4 / 255, defence="aaa", budget=60)
    alone = parsimon.attack("standard", images, labels, 4 / 255, attack="square", budget=60, defence="aaa")
    assert report.attackers["unaware of it"].results["Square"].outcomes == alone.outcomes
    plain = parsimon.attack("standard", images, labels, 4 / 255, attack="thrift", budget=60)
    assert report.undefended.results["Thrift"].outcomes == plain.outcomes
    undone = report.attackers["undoes it"].results["Thrift"]
    assert [each.success for each in undone.outcomes] == [each.success for each in plain.outcomes]

    fooled = {
        each.index
        for run in report.defended.values()
        for result in run.results.values()
        for each in result.outcomes
        if each.success
    }
    robust = int(alone.clean.correct.sum()) - len(fooled)
    assert report.verdict.value == robust / len(labels)
    assert report.verdict.interval == wilson_interval(robust, len(labels))
    assert f"{report.verdict.value:.1%}" in str(report)
    assert len(list(report.rows())) == len(labels) * sum(len(run.results) for run in report.attackers.values())


def test_what_a_detector_sees(data: tuple[NDArray[Any], NDArray[Any]]) -> None:
    images, labels = data
    report = parsimon.assess_defence(
        "robust", images, labels, 8 / 255, defence=["blacklight:cifar10"], budget=60, flag_price=10
    )
    table = report.detection_table()
    assert table is not None
    result = report.attackers["unaware of it"].results["Square"]
    assert result.summary.flagged
    for outcome in result.outcomes:
        assert report.cost(outcome) == outcome.queries + 9 * (outcome.flagged or 0)
    stopped = sum(each.success and each.first_flag is None for each in result.outcomes)
    correct = int(result.clean.correct.sum())
    row = next(row for group in table.groups for row in group if row[1].text == "Square")
    assert row[4].text == f"{(correct - stopped) / len(labels):.1%}"
    # A detector changes no response.
    plain = report.undefended.results["Square"].outcomes
    assert [each.queries for each in plain] == [each.queries for each in result.outcomes]
    rows = [row for row in report.rows() if row["attacker"] == "unaware of it" and row["attacked"]]
    assert {row["flagged"] for row in rows} == {
        each.flagged
        for run in (report.attackers["unaware of it"],)
        for each_result in run.results.values()
        for each in each_result.outcomes
    }


def test_a_defence_that_breaks_the_model_leaves_nothing(
    data: tuple[NDArray[Any], NDArray[Any]], tmp_path: Path
) -> None:
    """The undefended runs are kept, and the robust accuracy behind the defence is 0."""
    images, labels = data
    # Behind one bit per pixel, none of these images keeps its class.
    plain = parsimon.attack("standard", images, labels, 4 / 255, budget=1, defence="bit-depth,bits=1", attack="random")
    wrong = ~plain.clean.correct
    assert 2 <= wrong.sum() < len(wrong)
    report = parsimon.assess_defence(
        "standard", images[wrong], labels[wrong], 4 / 255, defence="bit-depth,bits=1", budget=5
    )
    assert (report.broken, list(report.attackers)) == (True, ["no defence"])
    assert (report.verdict.value, report.verdict.interval) == (0, wilson_interval(0, int(wrong.sum())))
    assert report.undefended.verdict.value > 0
    assert "the model classifies no image correctly" in " ".join(str(report).split())
    assert f"{report.verdict} behind it" in report.headline()
    np.savez(tmp_path / "wrong.npz", images=images[wrong], labels=labels[wrong])
    words = ["--model", "standard", "--data", str(tmp_path / "wrong.npz"), "--images", "all", "--budget", "5", "--json"]
    for _ in range(2):  # the second continues
        ran = CliRunner().invoke(command, ["defend", "bit-depth,bits=1", *words, "--out", str(tmp_path / "out")])
        assert ran.exit_code == 0, ran.output
        assert json.loads(ran.output)["robust_accuracy"]["value"] == 0
    with pytest.raises(NothingToAttackError):  # wrong labels are no defence's fault
        parsimon.assess_defence("standard", images, (labels + 1) % 10, 4 / 255, defence="bit-depth,bits=1", budget=5)


def test_an_attack_without_images_flags_nothing(data: tuple[NDArray[Any], NDArray[Any]]) -> None:
    images, labels = data
    settings: Any = {"defence": "blacklight", "budget": 3}
    result = parsimon.attack("standard", images, labels, 4 / 255, **settings)
    nothing = Comparison({"Thrift": replace(result, outcomes=()), "Again": result})
    table = DefenceReport("blacklight", {"no defence": nothing, "unaware of it": nothing}, 10).detection_table()
    assert table is not None
    assert [cell.text for cell in table.groups[0][0]] == ["unaware of it", "Thrift", *"----"]


def test_the_command_stores_each_attacker_and_continues(tmp_path: Path) -> None:
    words = [
        "defend",
        "round",
        "--model",
        "standard",
        "--images",
        "4",
        "--budget",
        "20",
        "--out",
        str(tmp_path / "out"),
    ]
    first = CliRunner().invoke(command, words)
    assert first.exit_code == 0, first.output
    assert "uses labels alone" in first.output
    for name in ("no-defence", "unaware-of-it", "uses-labels-alone"):
        assert (tmp_path / "out" / name / "spec.toml").exists()
    again = CliRunner().invoke(command, [*words, "--json"])
    document = json.loads(again.output)
    assert document["finished"]
    plain, behind = (runs.load(tmp_path / "out" / name) for name in ("no-defence", "unaware-of-it"))
    assert document["undefended_robust_accuracy"] == json.loads(json.dumps(plain.verdict.as_dict()))
    assert document["robust_accuracy"]["value"] <= behind.verdict.value
    table = (tmp_path / "out" / "table.md").read_text()
    assert all(row["attacker"]["text"] in table for row in document["rows"])
    with pytest.raises(StoreError, match=r"Name one of the runs inside: .*no-defence, .*uses-labels-alone"):
        runs.load(tmp_path / "out")


def test_settings_of_random_models_concern_the_random_defence_alone(data: tuple[NDArray[Any], NDArray[Any]]) -> None:
    """The model without it is attacked as always. Whoever does not know the defence does not repeat queries either."""
    images, labels = data
    report = parsimon.assess_defence("standard", images, labels, 4 / 255, defence="noise", budget=6, draws=5, repeats=2)
    sampled = {name: run.first.threat.sampling for name, run in report.attackers.items()}
    assert sampled == {
        "no defence": None,
        "unaware of it": Sampling(repeats=1, draws=5, error_rate=1),
        "averages 6 draws": Sampling(repeats=6, draws=5, error_rate=1),
        "tests changes": Sampling(repeats=2, draws=5),
    }
    assert "The defence draws from the seed" in str(report)


def test_a_model_that_is_random_without_the_defence_is_attacked_as_one(
    data: tuple[NDArray[Any], NDArray[Any]],
) -> None:
    images, labels = data
    network, rng = as_model("standard"), np.random.default_rng(0)

    def noisy(pixels: NDArray[Any]) -> NDArray[Any]:
        return network(np.clip(pixels + rng.normal(0, 0.01, pixels.shape).astype(np.float32), 0, 1))

    report = parsimon.assess_defence(
        noisy, images, labels, 4 / 255, defence="aaa", budget=20, draws=5, stochastic=True, seed=3
    )
    assert list(report.attackers)[-1] == "undoes it"
    assert "so results vary" in " ".join(str(report).split())
    assert all(run.first.threat.sampling is not None for run in report.attackers.values())


def test_a_model_that_returns_labels_is_attacked_by_labels(data: tuple[NDArray[Any], NDArray[Any]]) -> None:
    images, labels = data
    network = as_model("standard")

    def classes(pixels: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(network(pixels).argmax(axis=1))

    report = parsimon.assess_defence(classes, images, labels, 8 / 255, defence="jpeg", budget=20)
    assert {name: list(run.results) for name, run in report.attackers.items()} == {
        "no defence": ["Haggle", "RayS"],
        "unaware of it": ["Haggle", "RayS"],
    }
    for defence, sentence in {
        "round": "round changes scores, and this model returns labels",
        "noise": "no attack that uses labels alone can be run on a random model",
    }.items():
        with pytest.raises(InputError, match=sentence):
            parsimon.assess_defence(classes, images, labels, 8 / 255, defence=defence, budget=20)


def test_the_command_prints_what_a_detector_sees_as_json(tmp_path: Path) -> None:
    words = ["defend", "blacklight", "--model", "standard", "--images", "3", "--budget", "10", "--json"]
    found = CliRunner().invoke(command, [*words, "--out", str(tmp_path / "out")])
    assert found.exit_code == 0, found.output
    detection = json.loads(found.output)["detection"]
    assert [row["attacker"]["text"] for row in detection] == ["unaware of it"] * 2 + ["queries far apart"]
    assert all(row["flagged"]["interval"] for row in detection)


def test_the_command_refuses_before_it_makes_a_folder(tmp_path: Path) -> None:
    for words in (["noise", "--flag-price", "0"], ["nois"], ["noise", "--repeats", "9", "--budget", "8"]):
        refused = CliRunner().invoke(command, ["defend", *words, "--out", str(tmp_path / "out")])
        assert isinstance(refused.exception, InputError)
    assert not (tmp_path / "out").exists()


def test_defences_are_listed_and_described() -> None:
    listed = CliRunner().invoke(command, ["defences", "--json"])
    assert [each["name"] for each in json.loads(listed.output)["defences"]] == list(DEFENCES)
    for name in DEFENCES:
        shown = CliRunner().invoke(command, ["defences", name])
        assert shown.exit_code == 0, shown.output
        assert "Paper:" in shown.output


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no defence to assess"),
        ({"defence": "nose"}, "did you mean noise"),
        ({"defence": "round", "flag_price": 0.5}, "flag_price must be a number from 1"),
        ({"defence": ["blacklight", "blacklight"]}, "only one stateful defence"),
        ({"defence": "aaa", "loss": "cross-entropy"}, "assess_defence has no setting 'loss'"),
        ({"defence": "noise", "until_budget": True}, "assess_defence has no setting 'until_budget'"),
        ({"defence": "noise", "repeats": 11}, "repeats must be at most the budget"),
        ({"defence": 3}, "defence must be a name such as 'noise,sigma=0.02', or a list of names; got 3"),
    ],
)
def test_what_cannot_be_assessed_is_refused(
    data: tuple[NDArray[Any], NDArray[Any]], settings: dict[str, object], message: str
) -> None:
    """Before the model is queried at all."""
    images, labels = data

    def model(_: NDArray[Any]) -> NDArray[Any]:
        raise AssertionError("no query was needed")

    with pytest.raises(InputError, match=message):
        parsimon.assess_defence(model, images, labels, 4 / 255, budget=10, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [{"loss": "margin"}, {"until_budget": True}, {"targets": "next"}])
def test_stored_attackers_choose_their_own_losses_too(setting: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(defence=("jpeg",), model="standard", selection="any", **setting)
    with pytest.raises(InputError, match=f"leave out {next(iter(setting))}"):
        runs.assess_stored(config, tmp_path)


def test_defences_are_names_or_objects_everywhere(data: tuple[NDArray[Any], NDArray[Any]]) -> None:
    images, labels = data
    shared: Any = {"budget": 5}
    named = parsimon.attack("standard", images, labels, 4 / 255, defence="jpeg,quality=50", **shared)
    for defence in (Jpeg(50), [Jpeg(50)], ("jpeg,quality=50",)):
        given: Any = {**shared, "defence": defence}
        found = parsimon.attack("standard", images, labels, 4 / 255, **given)
        assert found.outcomes == named.outcomes
        assert found.defence == ("jpeg,quality=50",)
        assert (
            parsimon.compare("standard", images, labels, 4 / 255, ["thrift"], **given).first.outcomes == named.outcomes
        )
        evaluation = parsimon.evaluate("standard", images, labels, 4 / 255, attacks=["thrift"], **given)
        assert evaluation.results["Thrift"].outcomes == named.outcomes
    report = parsimon.assess_defence("standard", images, labels, 4 / 255, defence=Jpeg(50), **shared)
    assert report.defence == "jpeg,quality=50"
    assert report.attackers["unaware of it"].results["Thrift"].outcomes == named.outcomes
    assert RunConfig(defence="jpeg") == RunConfig(defence=[Jpeg()]) == RunConfig(defence=("jpeg",))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="defence must be a name such as"):
        parsimon.attack("standard", images, labels, 4 / 255, defence=7)  # type: ignore[arg-type]


def test_a_defence_that_changes_scores_needs_scores(data: tuple[NDArray[Any], NDArray[Any]]) -> None:
    images, labels = data
    network = as_model("standard")
    with pytest.raises((InputError, ModelError), match="returns labels"):
        parsimon.attack(lambda pixels: network(pixels).argmax(axis=1), images, labels, 4 / 255, defence="round")


def test_rounded_probabilities_that_do_not_sum_to_one_are_still_probabilities() -> None:
    """Detected from their sums they would be taken for logits, and the attack would climb another loss."""
    images, labels = (array[:20] for array in zoo.images())
    result = parsimon.attack("robust", images, labels, 8 / 255, defence="round,decimals=1", budget=5, attack="random")
    assert result.threat.scores == "probabilities"


def test_workers_open_the_defence_too() -> None:
    images, labels = (array[:6] for array in zoo.images())
    settings = {"defence": "noise,sigma=0.02", "stochastic": True, "draws": 20, "budget": 60}
    alone = parsimon.attack("standard", images, labels, 8 / 255, **settings)  # type: ignore[arg-type]
    spread = parsimon.attack("standard", images, labels, 8 / 255, workers=2, **settings)  # type: ignore[arg-type]
    assert alone.outcomes == spread.outcomes


def test_a_run_without_a_defence_takes_no_part_in_any_of_this() -> None:
    images, labels = (array[:4] for array in zoo.images())
    result = parsimon.attack("standard", images, labels, 8 / 255, budget=30)
    engine = Engine(result.attack, as_model("standard"), result.threat, budget=30)
    tasks = [Task(each.index, images[each.index], int(labels[each.index])) for each in result.outcomes]
    assert sorted(engine.run(tasks), key=lambda each: each.index) == list(result.outcomes)
    assert all(each.flagged is None and each.draws == 0 for each in result.outcomes)
    assert "flagged" not in next(iter(result.rows()))
