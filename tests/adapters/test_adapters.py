"""Our attacks in other libraries, and their models in ours: with the real library, and equal to `parsimon.attack`."""

from __future__ import annotations

import importlib
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import parsimon
from parsimon import InputError
from parsimon.adapters.recipe import KINDS
from parsimon.models import as_model
from parsimon.models.image_format import ImageFormat

foolbox: Any = pytest.importorskip("foolbox")
art_classifiers: Any = pytest.importorskip("art.estimators.classification")

adapted_foolbox: Any = importlib.import_module("parsimon.adapters.foolbox")
adapted_art: Any = importlib.import_module("parsimon.adapters.art")
pytest.importorskip("torchattacks")
adapted_torchattacks: Any = importlib.import_module("parsimon.adapters.torchattacks")

Pixels = NDArray[np.float32]

BUDGET = 40
EPS = 8 / 255
MEAN, DEVIATION = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)


class Network(nn.Module):
    """A small network with dropout, which must be in evaluation mode; some of its images are fooled, some are not."""

    def __init__(self, *, softmax: bool = False, normalised: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.5), nn.Flatten())
        self.linear = nn.Linear(8 * 64, 5)
        self.softmax, self.normalised = softmax, normalised

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.normalised:
            images = (images - torch.tensor(MEAN).reshape(1, 3, 1, 1)) / torch.tensor(DEVIATION).reshape(1, 3, 1, 1)
        scores: torch.Tensor = self.linear(self.layers(images))
        return scores.softmax(dim=1) if self.softmax else scores


IMAGES = (np.random.default_rng(0).integers(0, 256, (8, 3, 8, 8)) / 255).astype(np.float32)
with torch.no_grad():
    SEEN = Network().eval()(torch.from_numpy(IMAGES)).argmax(dim=1).numpy()
LABELS = SEEN.copy()
LABELS[3] = (LABELS[3] + 1) % 5  # one that the model misclassifies
TARGETS = (SEEN + 1) % 5
TARGETS[5] = SEEN[5]  # one that is where it should go


def ours(attack: str = "Parsimonious", eps: float = EPS, **settings: Any) -> parsimon.Result:
    given = {"labels": LABELS, "budget": BUDGET, **settings}
    return parsimon.attack(Network().eval(), IMAGES, eps=eps, attack=KINDS[attack](), **given)


@pytest.fixture(scope="module")
def expected() -> parsimon.Result:
    result = ours()
    assert 0 < result.success.sum() < 7  # or else little would be tested
    return result


def fmodel(**settings: Any) -> Any:
    return foolbox.PyTorchModel(Network(**settings).eval(), bounds=(0, 1), device="cpu")


def classifier(module: nn.Module | None = None, **settings: Any) -> Any:
    given: dict[str, Any] = {"clip_values": (0, 1), **settings}
    return art_classifiers.PyTorchClassifier(
        module or Network(), loss=nn.CrossEntropyLoss(), input_shape=(3, 8, 8), nb_classes=5, device_type="cpu", **given
    )


# --- the same as ours, bit for bit, for every attack ----------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_every_attack_finds_in_every_library_what_it_finds_in_ours(name: str) -> None:
    expected = ours(name)
    images, labels = torch.from_numpy(IMAGES), torch.from_numpy(LABELS)

    attack = getattr(adapted_foolbox, name)(budget=BUDGET)
    raw, clipped, success = attack(fmodel(), images, labels, epsilons=EPS)
    assert attack.results[0].outcomes == expected.outcomes
    np.testing.assert_array_equal(raw, expected.adversarial)
    np.testing.assert_array_equal(clipped, expected.adversarial)
    np.testing.assert_array_equal(success, expected.success | (SEEN != LABELS))

    attack = getattr(adapted_torchattacks, name)(Network(), eps=EPS, budget=BUDGET)
    np.testing.assert_array_equal(attack(images, labels), expected.adversarial)
    assert attack.result.outcomes == expected.outcomes

    attack = getattr(adapted_art, name)(classifier(), eps=EPS, budget=BUDGET)
    np.testing.assert_array_equal(attack.generate(IMAGES, LABELS), expected.adversarial)
    assert attack.result.outcomes == expected.outcomes


def test_every_attack_reaches_a_target_in_every_library() -> None:
    """Where an image is at its target, there is nothing to do; elsewhere it is ours from what the model sees."""
    away = TARGETS != SEEN
    others = np.where(away, SEEN, (SEEN + 1) % 5)  # of which ours skips the one that it takes for misclassified
    expected = ours(eps=0.2, labels=others, targets=np.where(away, TARGETS, (others + 1) % 5))
    assert 0 < expected.success.sum() < 7
    images, targets = torch.from_numpy(IMAGES), torch.from_numpy(TARGETS)

    criterion = foolbox.criteria.TargetedMisclassification(targets)
    attack = adapted_foolbox.Parsimonious(budget=BUDGET)
    raw, _, success = attack(fmodel(), images, criterion, epsilons=0.2)
    np.testing.assert_array_equal(raw, expected.adversarial)
    np.testing.assert_array_equal(success, expected.success | ~away)

    attack = adapted_torchattacks.Parsimonious(Network(), eps=0.2, budget=BUDGET)
    attack.set_mode_targeted_by_label(quiet=True)
    np.testing.assert_array_equal(attack(images, targets), expected.adversarial)
    attack.set_mode_targeted_by_function(lambda *_: targets, quiet=True)
    np.testing.assert_array_equal(attack(images, torch.from_numpy(LABELS)), expected.adversarial)

    attack = adapted_art.Parsimonious(classifier(), eps=0.2, targeted=True, budget=BUDGET)
    np.testing.assert_array_equal(attack.generate(IMAGES, np.eye(5)[TARGETS]), expected.adversarial)


def test_an_image_with_nothing_to_attack_comes_back() -> None:
    wrong = torch.from_numpy((SEEN + 1) % 5)
    raw, _, success = adapted_foolbox.Square()(fmodel(), torch.from_numpy(IMAGES), wrong, epsilons=EPS)
    np.testing.assert_array_equal(raw, IMAGES)
    assert success.all()
    attack = adapted_torchattacks.Square(Network())
    np.testing.assert_array_equal(attack(torch.from_numpy(IMAGES), wrong), IMAGES)
    assert attack.result is None


def test_settings_and_presets_reach_the_attack_and_the_run() -> None:
    settings: dict[str, Any] = {"loss": "margin", "seed": 3, "budget": 9, "eight_bit": True, "batch_size": 5}
    attack = adapted_art.Parsimonious(classifier(), preset="cifar10", mini_batch=7, **settings)
    attack.generate(IMAGES, LABELS)
    own = parsimon.Parsimonious(block=4, mini_batch=7)
    expected = parsimon.attack(Network().eval(), IMAGES, LABELS, EPS, attack=own, **settings)
    assert attack.result.attack == own
    assert attack.result.threat == expected.threat
    assert attack.result.outcomes == expected.outcomes


# --- the libraries' own ways ----------------------------------------------------------------------------------------


def test_foolbox_several_radii_and_none(expected: parsimon.Result) -> None:
    attack = adapted_foolbox.Parsimonious(budget=BUDGET)
    raw, clipped, success = attack(
        fmodel(), torch.from_numpy(IMAGES), torch.from_numpy(LABELS), epsilons=[0.0, EPS, 0.2]
    )
    assert len(raw) == len(clipped) == 3
    assert success.shape == (3, 8)
    np.testing.assert_array_equal(raw[0], IMAGES)
    np.testing.assert_array_equal(success[0], SEEN != LABELS)
    np.testing.assert_array_equal(raw[1], expected.adversarial)
    assert success[2].sum() > success[1].sum()
    assert [result.threat.eps for result in attack.results] == [EPS, 0.2]
    distances = foolbox.distances.linf(torch.from_numpy(IMAGES), raw[2])
    assert distances.max() <= 0.2 + 1e-6


def test_foolbox_eagerpy_tensors_come_back_as_they_were(expected: parsimon.Result) -> None:
    ep = importlib.import_module("eagerpy")
    images, labels = ep.astensors(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
    raw, _, success = adapted_foolbox.Parsimonious(budget=BUDGET)(fmodel(), images, labels, epsilons=EPS)
    assert isinstance(raw, ep.PyTorchTensor)
    assert isinstance(success, ep.PyTorchTensor)
    np.testing.assert_array_equal(raw.numpy(), expected.adversarial)


def test_foolbox_bounds_and_preprocessing_are_the_models_own() -> None:
    """A model for pixels from -1 to 3, whose preprocessing Foolbox does: ours normalises in the module."""
    plain = Network(normalised=True).eval()
    labels = plain(torch.from_numpy(IMAGES)).argmax(dim=1).detach()
    expected = parsimon.attack(plain, IMAGES, labels, EPS, attack="parsimonious", budget=BUDGET)
    preprocessing = {"mean": [4 * m - 1 for m in MEAN], "std": [4 * d for d in DEVIATION], "axis": -3}
    model = foolbox.PyTorchModel(Network().eval(), bounds=(-1, 3), device="cpu", preprocessing=preprocessing)
    attack = adapted_foolbox.Parsimonious(budget=BUDGET)
    raw, _, success = attack(model, torch.from_numpy(IMAGES) * 4 - 1, labels, epsilons=4 * EPS)
    assert attack.results[0].outcomes == expected.outcomes
    np.testing.assert_array_equal(success, expected.success)
    np.testing.assert_allclose((raw + 1) / 4, expected.adversarial, atol=1e-6)
    seen = model(raw).argmax(dim=1)
    np.testing.assert_array_equal(seen != labels, expected.success)


def test_foolbox_models_of_other_frameworks_with_channels_last(expected: parsimon.Result) -> None:
    network = Network().eval()

    def predict(images: Pixels) -> Pixels:
        with torch.no_grad():
            return np.asarray(network(torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))))

    model = foolbox.NumPyModel(predict, bounds=(0, 1), data_format="channels_last")
    raw, _, success = adapted_foolbox.Parsimonious(budget=BUDGET)(
        model, IMAGES.transpose(0, 2, 3, 1), LABELS, epsilons=EPS
    )
    np.testing.assert_array_equal(raw.transpose(0, 3, 1, 2), expected.adversarial)
    np.testing.assert_array_equal(success, expected.success | (SEEN != LABELS))


def test_torchattacks_undoes_the_normalisation_that_is_used() -> None:
    """The model takes normalised images, and the radius is one of pixels."""
    plain = Network(normalised=True).eval()
    labels = plain(torch.from_numpy(IMAGES)).argmax(dim=1).detach()
    expected = parsimon.attack(plain, IMAGES, labels, EPS, attack="parsimonious", budget=BUDGET)
    attack = adapted_torchattacks.Parsimonious(Network(), eps=EPS, budget=BUDGET)
    attack.set_normalization_used(mean=MEAN, std=DEVIATION)
    adversarial = attack(attack.normalize(torch.from_numpy(IMAGES)), labels)
    assert [each.success for each in attack.result.outcomes] == [each.success for each in expected.outcomes]
    np.testing.assert_allclose(attack.inverse_normalize(adversarial), expected.adversarial, atol=1e-6)


def test_torchattacks_saves_and_leaves_the_model_as_it_was(tmp_path: Path, expected: parsimon.Result) -> None:
    network = Network().train()
    attack = adapted_torchattacks.Parsimonious(network, n_queries=BUDGET, norm="Linf", verbose=False)
    data = torch.utils.data.TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
    attack.save(torch.utils.data.DataLoader(data, batch_size=8), save_path=str(tmp_path / "saved.pt"), verbose=False)
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    np.testing.assert_array_equal(saved["adv_inputs"], expected.adversarial)
    assert network.training


def test_art_labels_in_every_form(expected: parsimon.Result) -> None:
    attack = adapted_art.Parsimonious(classifier(), eps=EPS, max_iter=BUDGET, norm=np.inf, verbose=False)
    for labels in (LABELS, LABELS[:, None], np.eye(5)[LABELS]):
        np.testing.assert_array_equal(attack.generate(x=IMAGES, y=labels), expected.adversarial)
    attack.generate(IMAGES)  # away from what the classifier sees: the misclassified one is attacked, too
    np.testing.assert_array_equal(attack.result.labels, SEEN)
    assert len(attack.result.outcomes) == 8


def test_art_parameters_are_set_afterwards() -> None:
    attack = adapted_art.Square(classifier(), eps=0.5)
    attack.set_params(eps=EPS, budget=BUDGET, p_init=0.5)
    attack.generate(IMAGES, LABELS)
    assert attack.result.attack == parsimon.Square(p_init=0.5)
    assert attack.result.threat.eps == EPS
    assert attack.result.budget == BUDGET


@pytest.mark.parametrize("kind", ["BlackBoxClassifier", "BlackBoxClassifierNeuralNetwork"])
def test_art_black_box_of_probabilities_with_channels_last_and_bytes(kind: str) -> None:
    """Shown only what is asked, never padding: behind it may be a service that counts."""
    network, shown = Network(softmax=True).eval(), []

    def predict(images: Pixels) -> Pixels:
        shown.append(len(images))
        with torch.no_grad():
            return np.asarray(network(torch.from_numpy(images.transpose(0, 3, 1, 2) / np.float32(255))))

    where = {"channels_first": False} if kind.endswith("Network") else {}
    model = getattr(art_classifiers, kind)(predict, (8, 8, 3), 5, clip_values=(0, 255), **where)
    images = np.rint(IMAGES.transpose(0, 2, 3, 1) * 255).astype(np.float32)
    attack = adapted_art.Parsimonious(model, eps=12, budget=BUDGET)
    adversarial = attack.generate(images, LABELS)
    assert attack.result.threat.scores == "probabilities"
    assert attack.result.success.any()
    kept = ~attack.result.success
    np.testing.assert_array_equal(adversarial[kept], images[kept])
    assert np.abs(adversarial - images).max() <= 12 + 1e-4
    # Once to classify, once to see whether the scores stay the same.
    verified = attack.result.verification.queried
    assert sum(shown) == attack.result.counters.rows + 2 * len(images) + verified
    fooled = predict(adversarial).argmax(axis=1) != LABELS
    np.testing.assert_array_equal(fooled, attack.result.success | (SEEN != LABELS))


def test_art_gradients_are_those_of_torch_in_another_range() -> None:
    theirs = as_model(classifier(Scaled(), clip_values=(-1, 3)))
    straight = as_model(Network())

    def slope(scores: NDArray[Any]) -> NDArray[Any]:
        return np.arange(scores.size, dtype=np.float64).reshape(scores.shape)

    told, gradients = theirs.vjp(IMAGES, slope)
    scores, expected = straight.vjp(torch.from_numpy(IMAGES), slope)
    np.testing.assert_allclose(told, scores, atol=1e-5)
    np.testing.assert_allclose(gradients, expected, rtol=1e-3, atol=1e-4)


class Scaled(Network):
    """The network for pixels from -1 to 3."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward((images + 1) / 4)


# --- their models in our functions ----------------------------------------------------------------------------------


def test_their_models_are_attacked_as_the_module_inside(expected: parsimon.Result) -> None:
    for model in (fmodel(), classifier()):
        result = parsimon.attack(model, IMAGES, LABELS, EPS, attack="parsimonious", budget=BUDGET)
        assert result.outcomes == expected.outcomes


def test_foolbox_wrappers_are_seen_through() -> None:
    model = foolbox.PyTorchModel(Scaled().eval(), bounds=(-1, 3), device="cpu").transform_bounds((0, 1), wrapper=True)
    scores = as_model(model)(torch.from_numpy(IMAGES))
    np.testing.assert_allclose(scores, as_model(Network())(torch.from_numpy(IMAGES)), atol=1e-5)


# --- frames ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 255), (-1, 1), (-2.1179, 2.64)])
def test_images_go_there_and_back(low: float, high: float, last: bool) -> None:
    form = ImageFormat(low, high, last)
    there = form.to_framework(IMAGES)
    assert there.shape == ((8, 8, 8, 3) if last else IMAGES.shape)
    assert there.dtype == np.float32
    assert there.min() >= np.float32(low)
    assert there.max() <= np.float32(high)
    np.testing.assert_allclose(form.from_framework(there), IMAGES, atol=1e-6)
    if not last:
        np.testing.assert_array_equal(form.to_framework(torch.from_numpy(IMAGES)), there)  # numpy and torch round alike


def test_bytes_survive_the_way_there_and_back() -> None:
    levels = np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16)
    form = ImageFormat(0, 255)
    np.testing.assert_array_equal(form.to_framework(form.from_framework(levels)), levels)


# --- wrong use ------------------------------------------------------------------------------------------------------


class Odd(foolbox.criteria.Criterion):  # type: ignore[misc]
    def __repr__(self) -> str:
        return "Odd()"

    def __call__(self, *_: Any) -> Any:
        raise AssertionError("it is refused before it is asked")


def hard(images: Pixels) -> Pixels:
    return np.asarray(np.eye(5, dtype=np.float32)[images.reshape(len(images), -1).argmax(axis=1) % 5])


def call_foolbox(criterion: Any = LABELS, epsilons: Any = EPS, images: Pixels = IMAGES, **unknown: Any) -> Any:
    tensor = criterion if isinstance(criterion, foolbox.criteria.Criterion) else torch.from_numpy(criterion)
    return adapted_foolbox.Square(budget=5)(fmodel(), torch.from_numpy(images), tensor, epsilons=epsilons, **unknown)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: adapted_foolbox.Square(n_steps=3),
            "Square has no setting 'n_steps'",
        ),
        (lambda: adapted_foolbox.Square(budget=5).repeat(3), "finds nothing new"),
        (lambda: call_foolbox(epsilons=None), "need a radius"),
        (lambda: call_foolbox(Odd()), "Misclassification or TargetedMisclassification; got Odd"),
        (lambda: call_foolbox(early_stop=1), "got early_stop"),
        (lambda: call_foolbox(images=IMAGES * 255), "in the model's range, 0 to 1; got 0 to 255"),
        (lambda: adapted_torchattacks.Square(Network(), norm="L2"), "norm must be inf; got 'L2'"),
        (lambda: adapted_torchattacks.Square(Network())(torch.zeros(1, 3, 8, 8)), "needs the true classes"),
        (lambda: adapted_art.Square(classifier(), targeted=True).generate(IMAGES), "needs the classes to reach"),
        (lambda: adapted_art.Square(classifier()).generate(IMAGES, LABELS, mask=1), "got mask"),
        (lambda: adapted_art.Square(classifier(clip_values=None)).generate(IMAGES), "clip_values"),
        (
            lambda: adapted_art.Square(classifier()).generate(IMAGES[0], LABELS[:1]),
            r"\(number, channels, rows, columns\)",
        ),
        (
            lambda: adapted_art.Square(
                art_classifiers.BlackBoxClassifier(hard, (3, 8, 8), 5, clip_values=(0, 1))
            ).generate(IMAGES),
            "Square needs scores, and this model returns only labels",
        ),
        (
            lambda: as_model(art_classifiers.BlackBoxClassifier(hard, (3, 8, 3), 5, clip_values=(0, 1))),
            "does not show which side holds the channels",
        ),
    ],
)
def test_wrong_use_is_answered_with_a_sentence(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


def test_an_unknown_attack_is_an_attribute_that_is_missing() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from parsimon.adapters.foolbox import Nothing")


@pytest.mark.parametrize("module", [adapted_foolbox, adapted_art, adapted_torchattacks], ids=lambda each: each.__name__)
def test_every_attack_is_a_class_of_its_module(module: Any) -> None:
    for name in KINDS:
        kind = getattr(module, name)
        assert pickle.loads(pickle.dumps(kind)) is kind
        assert name in module.__all__
        own = set(KINDS[name].__dataclass_fields__)  # type: ignore[attr-defined]
        assert not own & {
            "preset",
            "eps",
            "targeted",
            "model",
            "estimator",
            *parsimon.api.SharedSettings.__annotations__,
        }


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Ctrl-C in a second."""
    timer = threading.Timer(1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    yield
    timer.cancel()


def test_ctrl_c_ends_the_script_and_not_one_batch_of_it(interrupted: None) -> None:  # noqa: ARG001
    attack = adapted_torchattacks.RandomCorners(Network(), eps=1e-6, budget=10**9)
    with pytest.raises(KeyboardInterrupt):
        attack(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
