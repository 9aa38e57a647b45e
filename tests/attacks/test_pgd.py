"""PGD, against a twin in torch on the bundled network, and the gradients that it is told against torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812  (torch's own convention)

import parsimon
from bundled_images import Bundled
from driving import Exact, Pixels, context_of, drawn, in_ball, pixels_of, random_image
from hand_made import hand_made
from parsimon import InputError, ModelError, Outcome, Result, Threat, zoo
from parsimon.attacks import PGD
from parsimon.core.engine import Engine, Step
from parsimon.core.model import ScoreGradient
from parsimon.core.types import Ask, Reply, Task
from parsimon.models import as_model
from parsimon.models.torch import TorchModel
from parsimon.testing import Network, tasks_for
from small_model import IMAGES, LABELS, linear

EPS = 8 / 255
THREATS = [
    Threat(EPS),
    Threat(EPS, loss="margin"),
    Threat(EPS, targeted=True),
    Threat(EPS, targeted=True, loss="margin"),
]

Chosen = tuple[Pixels, NDArray[np.int64]]


@pytest.fixture(scope="module")
def module() -> Any:
    """In double precision, where signs are beyond doubt."""
    return hand_made("robust").double()


@pytest.fixture(scope="module")
def chosen(bundled: Bundled) -> Chosen:
    """The images that the network classifies correctly."""
    return bundled.images[bundled.correct], bundled.labels[bundled.correct]


def goals_of(labels: NDArray[np.int64], threat: Threat) -> NDArray[np.int64]:
    return (labels + 1) % 10 if threat.targeted else labels


def autograd(module: Any, images: NDArray[Any], goals: NDArray[np.int64], threat: Threat) -> tuple[Exact, Exact]:
    """Scores, and the gradients of the loss to raise."""
    leaves = torch.from_numpy(images).to(module.head.weight.dtype).requires_grad_()
    scores = module(leaves)
    if threat.loss == "cross-entropy":
        away = F.cross_entropy(scores, torch.from_numpy(goals), reduction="none")
    else:
        own = F.one_hot(torch.from_numpy(goals), 10).bool()
        away = scores.masked_fill(own, -torch.inf).amax(dim=1) - scores[own]
    total = -away.sum() if threat.targeted else away.sum()
    (gradients,) = torch.autograd.grad(total, leaves)
    return np.asarray(scores.detach()), np.asarray(gradients)


# --- the gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_the_told_gradient_is_that_of_torch(module: Any, chosen: Chosen, threat: Threat) -> None:
    images, goals = chosen[0], goals_of(chosen[1], threat)
    expected_scores, expected = autograd(module, images, goals, threat)
    shown = torch.from_numpy(images)
    scores, gradients = TorchModel(module).vjp(shown, lambda scores: threat.loss_gradient(scores, goals))
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    np.testing.assert_allclose(gradients, expected, rtol=1e-4, atol=1e-6 * float(np.abs(expected).max()))
    assert not shown.requires_grad


@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_the_gradient_of_probabilities_is_that_of_their_logarithms(module: Any, chosen: Chosen, threat: Threat) -> None:
    images, goals = chosen[0], goals_of(chosen[1], threat)
    _, expected = autograd(module, images, goals, threat)
    told = Threat(EPS, threat.targeted, threat.loss, scores="probabilities")
    model = TorchModel(torch.nn.Sequential(module, torch.nn.Softmax(dim=1)))
    _, gradients = model.vjp(torch.from_numpy(images), lambda scores: told.loss_gradient(scores, goals))
    np.testing.assert_allclose(gradients, expected, rtol=1e-3, atol=1e-5 * float(np.abs(expected).max()))


def test_the_module_is_left_as_it_was_found(chosen: Chosen) -> None:
    images, labels = chosen
    module = hand_made("robust")
    module.norm.train()  # some parts training, others not
    module.stages[1].train()
    flags = [part.training for part in module.modules()]
    learning = [weight.requires_grad for weight in module.parameters()]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    for number, weight in enumerate(module.parameters()):
        weight.grad = None if number % 2 else torch.full_like(weight, 7.0)
    assert True in flags
    assert False in flags
    result = parsimon.attack(module, images[:2], labels[:2], EPS, attack=PGD(steps=3), batch_size=4)
    assert result.outcomes[0].gradients > 0
    assert [part.training for part in module.modules()] == flags
    assert [weight.requires_grad for weight in module.parameters()] == learning
    for number, weight in enumerate(module.parameters()):
        assert (weight.grad is None) == bool(number % 2)
        assert weight.grad is None or torch.equal(weight.grad, torch.full_like(weight, 7.0))
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])


# --- the attack -----------------------------------------------------------------------------------------------------


class Watched(TorchModel):
    """A model that records the first image of each call."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.shown: list[Pixels] = []

    def __call__(self, images: Any) -> NDArray[Any]:
        self.shown.append(np.asarray(images[0].clone()))
        return super().__call__(images)

    def vjp(self, images: Any, slope: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        self.shown.append(np.asarray(images[0].clone()))
        return super().vjp(images, slope)


def twin(module: Any, image: Pixels, goal: int, threat: Threat, attack: PGD) -> tuple[Exact, bool]:
    """The iterates from the image itself up to the first success, and whether there is one."""
    clean = image.astype(np.float64)
    lowest, highest = np.clip(clean - threat.eps, 0, 1), np.clip(clean + threat.eps, 0, 1)
    current, iterates = clean, []
    for _ in range(attack.steps + 1):
        iterates.append(current)
        scores, gradient = autograd(module, current[None], np.array([goal]), threat)
        if (scores[0].argmax() == goal) == threat.targeted:
            return np.stack(iterates), True
        current = np.clip(current + attack.step * np.sign(gradient[0]), lowest, highest)
    return np.stack(iterates), False


@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_iterates_and_success_are_those_of_the_twin(module: Any, chosen: Chosen, threat: Threat) -> None:
    attack = PGD(steps=6, random_start=False)
    images, goals = chosen[0][:3], goals_of(chosen[1], threat)[:3]
    for image, goal in zip(images, goals.tolist(), strict=True):
        expected, success = twin(module, image, goal, threat, attack)
        model = Watched(module)
        (outcome,) = Engine(attack, model, threat, budget=100, batch_size=1).run([Task(0, image, goal)])
        assert (outcome.success, outcome.queries) == (success, len(expected))
        assert outcome.gradients == min(attack.steps, outcome.queries)
        np.testing.assert_allclose(np.stack(model.shown), expected, atol=1e-6)


def told_nothing_of_use(attack: PGD, image: Pixels, seed: int) -> list[tuple[Ask, Pixels]]:
    """All that it asks for where each gradient is 1."""
    context = context_of(image, EPS)
    search, asked = attack.search(context, np.random.default_rng(seed)), []
    ask = next(search)
    try:
        while True:
            asked.append((ask, drawn(context, ask)[0]))
            ask = search.send(Reply(np.zeros(1), np.ones((1, *image.shape), np.float32)))
    except StopIteration:
        return asked


def test_each_restart_is_its_own_random_point_of_the_ball_and_one_query_more_than_steps() -> None:
    image = random_image((3, 6, 6))
    image.flat[:20] = np.linspace(0, 1, 20)
    asked = told_nothing_of_use(PGD(steps=4, restarts=3), image, seed=0)
    assert [ask.gradient for ask, _ in asked] == [True, True, True, True, False] * 3
    assert all(ask.charged for ask, _ in asked)
    images = np.stack([image for _, image in asked])
    assert in_ball(context_of(image, EPS), images).all()
    starts = (images[::5] - image) / EPS
    assert len(np.unique(starts[:, 2], axis=0)) == 3
    assert -0.2 < starts[:, 1:].mean() < 0.2
    assert starts[:, 1:].std() == pytest.approx(1 / np.sqrt(3), abs=0.1)  # of a uniform one over [-1, 1]
    again = told_nothing_of_use(PGD(steps=4, restarts=3), image, seed=0)
    np.testing.assert_array_equal(images, np.stack([image for _, image in again]))


class TwoWays(Network):
    """Scores otherwise, in double precision, when gradients are asked for."""

    def vjp(self, images: Any, slope: ScoreGradient) -> tuple[Any, Any]:
        scores, gradients = super().vjp(images, slope)
        return scores + 0.01 * np.arange(scores.shape[1]), gradients.astype(np.float64)


def test_all_points_are_scored_in_one_way_whatever_is_asked_beside_them() -> None:
    network, threat = TwoWays((3, 8, 8)), Threat(0.004)
    tasks = tasks_for(network.shape, threat, 8)
    told: list[list[Any]] = []
    for batch_size, in_flight in ((1, 1), (3, 8)):
        losses: dict[int, list[float]] = {}

        def record(step: Step, losses: Any = losses) -> None:
            for each in step.entries:
                losses.setdefault(each.image, []).extend(each.loss.tolist())

        engine = Engine(PGD(steps=3, restarts=2), network, threat, budget=8, batch_size=batch_size, in_flight=in_flight)
        outcomes = sorted(engine.run(tasks, record), key=lambda outcome: outcome.index)
        told.append([outcomes, losses])
    assert told[0] == told[1]
    assert any(len(each) > 4 for each in told[0][1].values())  # beyond the last point of the first start


def test_a_gradient_of_zero_moves_nothing() -> None:
    image = random_image((3, 6, 6), margin=0.2)
    search = PGD(random_start=False).search(context_of(image), np.random.default_rng(0))
    next(search)
    gradient = np.sign(np.random.default_rng(1).integers(-1, 2, (1, 3, 6, 6))).astype(np.float32)
    moved = pixels_of(search.send(Reply(np.zeros(1), gradient)))
    assert isinstance(moved, np.ndarray)
    np.testing.assert_allclose(moved - image, 2 / 255 * gradient[0], atol=1e-7)


@pytest.fixture(scope="module")
def once_and_thrice(chosen: Chosen) -> tuple[Result, Result]:
    """Of few and short steps, so that one start often fails."""
    images, labels = chosen
    model = zoo.module("robust")
    once, thrice = (
        parsimon.attack(model, images, labels, EPS, attack=PGD(3, 2 / 255, restarts=restarts), batch_size=8)
        for restarts in (1, 3)
    )
    return once, thrice


def test_restarts_keep_every_success_of_the_first_start(once_and_thrice: tuple[Result, Result]) -> None:
    once, thrice = once_and_thrice
    assert (thrice.success >= once.success).all()
    assert (thrice.queries[once.success] == once.queries[once.success]).all()
    assert once.success.any()
    assert not once.success.all()


def test_queries_and_gradients_are_counted_over_all_starts(once_and_thrice: tuple[Result, Result]) -> None:
    for result, restarts in zip(once_and_thrice, (1, 3), strict=True):
        for outcome in result.outcomes:
            whole, rest = divmod(outcome.queries, 4)  # the last query of a start asks for no gradient
            assert outcome.gradients == 3 * whole + rest
            assert outcome.queries <= 4 * restarts
            assert (outcome.ended, outcome.uncharged, outcome.outside) == (
                ("success" if outcome.success else "exhausted"),
                0,
                0,
            )
            if not outcome.success:
                assert (outcome.queries, outcome.gradients) == (4 * restarts, 3 * restarts)


def test_the_budget_ends_it_in_the_middle(chosen: Chosen) -> None:
    outcomes = attacked_targets(chosen, budget=5)
    assert {(outcome.ended, outcome.queries, outcome.gradients) for outcome in outcomes} == {("budget", 5, 5)}


def attacked_targets(chosen: Chosen, budget: int) -> tuple[Outcome, ...]:
    """Two images that no few steps bring to the next class."""
    images, labels = (array[:2] for array in chosen)
    attack = PGD(steps=20, step=1e-4)
    result = parsimon.attack("robust", images, labels, EPS, attack=attack, budget=budget, targets="next", batch_size=4)
    return result.outcomes


def test_a_bundled_network_by_name_gives_the_modules_scores_and_can_be_attacked(chosen: Chosen, module: Any) -> None:
    images, labels = chosen
    model = as_model("robust")
    assert model.gives == "gradient"
    with torch.no_grad():
        expected = np.asarray(module(torch.from_numpy(images).double()))
    np.testing.assert_allclose(model(images), expected, atol=1e-4)
    scores, gradients = model.vjp(images, lambda scores: Threat(EPS).loss_gradient(scores, labels))
    _, expected_gradients = autograd(hand_made("robust"), images, labels, Threat(EPS))
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    # Where rounding puts a ReLU's input on the other side of zero, some pixels differ; in double precision none does.
    assert np.linalg.norm(gradients - expected_gradients) < 1e-2 * np.linalg.norm(expected_gradients)

    by_name, by_module = (
        parsimon.attack(model, images, labels, EPS, attack=PGD(steps=5), batch_size=8)
        for model in ("robust", hand_made("robust"))
    )
    np.testing.assert_array_equal(by_name.success, by_module.success)
    np.testing.assert_array_equal(by_name.queries, by_module.queries)
    assert by_name.success.any()
    with torch.no_grad():
        fooled = np.asarray(module(torch.from_numpy(by_name.adversarial).double())).argmax(axis=1)
    np.testing.assert_array_equal(fooled != labels, by_name.success)


@pytest.mark.parametrize("kind", ["function", "session"])
def test_a_model_that_tells_no_gradients_is_refused(kind: str) -> None:
    session = onnxruntime.InferenceSession(str(zoo.path("robust")), providers=["CPUExecutionProvider"])
    sentence = (
        "PGD is a white-box attack and needs gradients, which this model does not give: pass a torch module, or an "
        "ONNX file by its path or its name in the zoo"
    )
    with pytest.raises(ModelError, match=sentence):
        parsimon.attack(linear if kind == "function" else session, IMAGES, LABELS, 0.02, attack=PGD())


def test_presets_are_the_papers() -> None:
    assert {name: (PGD.preset(name).steps, PGD.preset(name).step) for name in PGD.presets} == {
        "cifar10": (20, 2 / 255),
        "imagenet": (20, 0.01),
        "imagenet-targeted": (200, 0.001),
    }


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": 0}, "steps must be a whole number, at least 1; got 0"),
        ({"restarts": 0}, "restarts must be a whole number, at least 1; got 0"),
        ({"step": 0}, "step must be a number from 1e-09"),
        ({"restarts": 2, "random_start": False}, "restarts need random_start"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        PGD(**settings)
