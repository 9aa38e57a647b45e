"""`parsimon.attack`, end to end: whatever it says of an image is checked with the model itself."""

from __future__ import annotations

import re
import threading
import weakref
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

import parsimon
from bundled_images import Bundled
from parsimon import InputError, Result, zoo

Pixels = NDArray[np.float32]

# Radii at which some images are fooled at once, whatever the bundled weights, and at which some are not.
LARGE, SMALL = 128 / 255, 0.5 / 255


@cache
def session() -> Any:
    return onnxruntime.InferenceSession(str(zoo.path("robust")), providers=["CPUExecutionProvider"])


def scores_of_the_bundled_network(images: Pixels) -> Pixels:
    """An independent forward pass: no code of parsimon between the images and the runtime."""
    return np.asarray(session().run(None, {session().get_inputs()[0].name: images})[0])


@pytest.fixture(scope="module")
def broken(bundled: Bundled) -> Result:
    return parsimon.attack(zoo.path("robust"), bundled.images, bundled.labels, LARGE, budget=60)


@pytest.fixture(scope="module")
def withstood(bundled: Bundled) -> Result:
    return parsimon.attack(zoo.path("robust"), bundled.images, bundled.labels, SMALL, budget=20)


def exact(images: Pixels) -> NDArray[np.float64]:
    """A model of whole numbers, so that rounding cannot depend on the batch; its weights are smooth, as images are."""
    coarse = np.random.default_rng(0).integers(-8, 9, (3, 4, 4, 5))
    weights = coarse.repeat(8, axis=1).repeat(8, axis=2).reshape(3 * 32 * 32, 5).astype(np.float64)
    return np.asarray(np.rint(images.reshape(len(images), -1) * 255.0) @ weights / 4096)


def attack_exactly(model: Any = exact, eps: float = 32 / 255, **settings: Any) -> Result:
    """Of ten images some are fooled after many queries."""
    images, _ = zoo.images()
    arguments = {"attack": "parsimonious", "budget": 100, "eight_bit": True, **settings}
    return parsimon.attack(model, images[:10], exact(images[:10]).argmax(axis=1), eps, **arguments)


def same(left: Result, right: Result) -> None:
    assert left.outcomes == right.outcomes
    np.testing.assert_array_equal(left.adversarial, right.adversarial)


# --- what a result says ---------------------------------------------------------------------------------------------


def test_every_fooled_image_fools_the_model(bundled: Bundled, broken: Result) -> None:
    assert broken.success.any()
    seen = scores_of_the_bundled_network(broken.adversarial).argmax(axis=1)
    assert (seen[broken.success] != bundled.labels[broken.success]).all()
    for outcome in broken.outcomes:
        assert outcome.predicted == (seen[outcome.index] if outcome.success else None)


def test_a_success_after_many_queries_fools_the_model_too() -> None:
    result = attack_exactly()
    assert result.queries[result.success].max() > 50
    seen = exact(result.adversarial).argmax(axis=1)
    np.testing.assert_array_equal(seen != result.labels, result.success)
    assert np.abs(result.adversarial - result.images)[result.success].max() <= 32 / 255 + 1e-6


@pytest.mark.parametrize("eight_bit", [False, True])
def test_adversarial_images_lie_in_the_ball_and_in_range(bundled: Bundled, eight_bit: bool) -> None:
    result = parsimon.attack(zoo.path("robust"), bundled.images, bundled.labels, LARGE, budget=60, eight_bit=eight_bit)
    adversarial = result.adversarial
    assert result.success.any()
    assert np.abs(adversarial - bundled.images).max() <= LARGE + 1e-6
    assert adversarial.min() >= 0
    assert adversarial.max() <= 1
    assert adversarial.dtype == np.float32
    levels = adversarial.astype(np.float64) * 255
    if eight_bit:
        np.testing.assert_allclose(levels, levels.round(), atol=1e-4)
        seen = scores_of_the_bundled_network((levels.round() / 255).astype(np.float32)).argmax(axis=1)
        assert (seen[result.success] != bundled.labels[result.success]).all()


def test_images_that_were_not_fooled_are_unchanged(bundled: Bundled, withstood: Result) -> None:
    assert not withstood.success.all()
    kept = ~withstood.success
    np.testing.assert_array_equal(withstood.adversarial[kept], bundled.images[kept])


def test_misclassified_images_are_not_attacked(bundled: Bundled, broken: Result) -> None:
    np.testing.assert_array_equal(broken.attacked, bundled.correct)
    assert (~bundled.correct).sum() == 2
    assert not broken.success[~bundled.correct].any()
    assert not broken.queries[~bundled.correct].any()
    np.testing.assert_array_equal(broken.adversarial[~bundled.correct], bundled.images[~bundled.correct])
    assert broken.clean.accuracy == 0.8


def test_confidences_are_those_of_the_network(bundled: Bundled, broken: Result) -> None:
    def confidence(images: NDArray[np.float32]) -> NDArray[np.float64]:
        scores = scores_of_the_bundled_network(images).astype(np.float64)
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return np.asarray(chances.max(axis=1))

    assert broken.clean.confidence is not None
    np.testing.assert_allclose(broken.clean.confidence, confidence(bundled.images), atol=1e-5)
    after = confidence(broken.adversarial)
    assert broken.success.any()
    for outcome in broken.outcomes:
        assert outcome.confidence == (pytest.approx(after[outcome.index], abs=1e-5) if outcome.success else None)


def test_arrays_line_up_with_the_images(bundled: Bundled, broken: Result) -> None:
    assert len(broken.attacked) == len(broken.success) == len(broken.queries) == len(bundled.images)
    assert broken.adversarial.shape == bundled.images.shape
    assert [outcome.index for outcome in broken.outcomes] == np.flatnonzero(bundled.correct).tolist()
    for outcome in broken.outcomes:
        assert broken.success[outcome.index] == outcome.success
        assert broken.queries[outcome.index] == outcome.queries


def test_no_image_takes_more_queries_than_the_budget_and_a_failure_takes_all(broken: Result, withstood: Result) -> None:
    for result in (broken, withstood):
        assert result.queries[result.attacked].min() >= 1
        assert result.queries.max() <= result.budget
        for outcome in result.outcomes:
            assert outcome.ended == ("success" if outcome.success else "budget")
            assert outcome.success or outcome.queries == result.budget
    assert (~withstood.success & withstood.attacked).any()


def test_the_model_is_fooled_only_at_the_last_query() -> None:
    """A function that is asked one image at a time is asked as often as is charged, and only the last fools it."""
    seen: list[Pixels] = []

    def watching(images: Pixels) -> NDArray[np.float64]:
        seen.extend(images.copy())
        return exact(images)

    result = attack_exactly(watching, batch_size=1, in_flight=1, at_most=4, verify=False)
    asked = iter(seen[11:])  # all ten clean images were shown before, and the first one twice
    assert result.success.sum() > 1
    for outcome in result.outcomes:
        shown = np.stack([next(asked) for _ in range(outcome.queries)])
        fooled = exact(shown).argmax(axis=1) != result.labels[outcome.index]
        assert fooled.tolist() == [False] * (len(shown) - 1) + [outcome.success]
        if outcome.success:
            np.testing.assert_array_equal(shown[-1], result.adversarial[outcome.index])
    assert next(asked, None) is None


def test_an_image_that_was_not_fooled_has_no_adversarial_image(withstood: Result) -> None:
    failure = next(outcome for outcome in withstood.outcomes if not outcome.success)
    with pytest.raises(InputError, match=f"image {failure.index} was not fooled"):
        withstood.draw(failure)


def test_the_tally_is_the_sum_of_the_queries(broken: Result) -> None:
    assert broken.counters.queries == broken.queries.sum() == broken.summary.queries
    assert broken.counters.successes == broken.success.sum() == broken.summary.successes


# --- models and images of every kind --------------------------------------------------------------------------------


def test_torch_onnx_and_a_function_give_the_same_result(bundled: Bundled) -> None:
    """Kernels round differently, so the losses may; within the first round of queries no choice hangs on them."""
    images, labels = bundled.images[:5], bundled.labels[:5]
    results = [
        parsimon.attack(model, images, labels, LARGE, budget=20)
        for model in (zoo.path("robust"), zoo.module("robust"), scores_of_the_bundled_network)
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result.attacked, results[0].attacked)
        np.testing.assert_array_equal(result.queries, results[0].queries)
        np.testing.assert_array_equal(result.adversarial, results[0].adversarial)


def test_torch_images_are_numpy_images(bundled: Bundled, broken: Result) -> None:
    images = torch.from_numpy(bundled.images.copy()).requires_grad_()
    labels = torch.from_numpy(bundled.labels)
    same(parsimon.attack(zoo.path("robust"), images, labels, LARGE, budget=60), broken)


def test_labels_may_be_a_list_of_numbers(bundled: Bundled, broken: Result) -> None:
    same(parsimon.attack(zoo.path("robust"), bundled.images, bundled.labels.tolist(), LARGE, budget=60), broken)


def test_the_images_given_are_not_written_to(bundled: Bundled) -> None:
    images = bundled.images.copy()
    images.flags.writeable = False
    result = parsimon.attack(zoo.path("robust"), images, bundled.labels, LARGE, budget=40)
    assert result.success.any()
    result.adversarial[:] = 0
    np.testing.assert_array_equal(images, bundled.images)


def test_an_attack_runs_outside_the_main_thread(bundled: Bundled, withstood: Result) -> None:
    """Where Ctrl-C cannot be listened for."""
    results: list[Result] = []
    arguments = (zoo.path("robust"), bundled.images, bundled.labels, SMALL)
    thread = threading.Thread(target=lambda: results.append(parsimon.attack(*arguments, budget=20)))
    thread.start()
    thread.join()
    same(results[0], withstood)


# --- sequences that read lazily -------------------------------------------------------------------------------------


class OnDisk:
    """Images that are read when they are asked for, and that watch how many are alive at once."""

    def __init__(self, images: Pixels) -> None:
        self._images = images
        self.asked: list[Any] = []
        self.alive = self.most_alive = 0

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Pixels:
        self.asked.append(index)
        image: Pixels = self._images[index].copy()
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        weakref.finalize(image, self._forget)
        return image

    def _forget(self) -> None:
        self.alive -= 1


def test_a_lazy_sequence_gives_the_result_of_the_array(bundled: Bundled, broken: Result) -> None:
    lazy = parsimon.attack(zoo.path("robust"), OnDisk(bundled.images), bundled.labels, LARGE, budget=60)
    same(lazy, broken)


def test_a_lazy_sequence_is_asked_for_few_images_at_once_and_twice_for_each(bundled: Bundled) -> None:
    source = OnDisk(bundled.images)
    sizes: Any = {"budget": 20, "batch_size": 2, "in_flight": 2}
    parsimon.attack(zoo.path("robust"), source, bundled.labels, SMALL, attack="parsimonious", **sizes)
    assert all(type(index) is int for index in source.asked)
    assert source.asked == [*range(10), *np.flatnonzero(bundled.correct)]  # to classify, then to attack
    assert source.most_alive <= 2 + 2  # a batch or a flight, the first image, and the one being read


# --- settings -------------------------------------------------------------------------------------------------------


def test_a_targeted_attack_reaches_the_very_target() -> None:
    images, _ = zoo.images()
    second_best = np.argsort(exact(images[:10]), axis=1)[:, -2]
    result = attack_exactly(targets=second_best)
    assert result.success.sum() > 1
    seen = exact(result.adversarial).argmax(axis=1)
    np.testing.assert_array_equal(seen == second_best, result.success)
    assert ", targeted," in str(result)


def test_next_is_the_class_after_the_true_one() -> None:
    result = attack_exactly(eps=64 / 255, budget=200, targets="next")
    goals = (result.labels + 1) % 5
    assert 4 in result.labels[result.success]  # whose next is 0
    seen = exact(result.adversarial).argmax(axis=1)
    np.testing.assert_array_equal(seen == goals, result.success)
    same(result, attack_exactly(eps=64 / 255, budget=200, targets=goals))


def test_random_targets_are_drawn_by_the_number_of_the_image_alone() -> None:
    first, again = (attack_exactly(eps=64 / 255, budget=200, targets="random", seed=seed) for seed in (0, 1))
    goals = []
    for index, label in enumerate(first.labels):
        draws = np.random.RandomState(index).randint(first.clean.classes, size=1000)
        goals.append(draws[draws != label][0])
    same(first, attack_exactly(eps=64 / 255, budget=200, targets=np.array(goals)))
    same(again, attack_exactly(eps=64 / 255, budget=200, targets=np.array(goals), seed=1))
    with pytest.raises(InputError, match="'next' or 'random'; got 'any'"):
        attack_exactly(targets="any")


def test_a_targeted_attack_on_the_bundled_network_reaches_the_very_target(bundled: Bundled) -> None:
    images, labels = bundled.images[bundled.correct], bundled.labels[bundled.correct]
    dark = np.maximum(images - np.float32(LARGE), 0)  # where the search begins: the easiest class to reach
    targets = scores_of_the_bundled_network(dark).argmax(axis=1)
    targets = np.where(targets == labels, (labels + 1) % 10, targets)
    result = parsimon.attack(zoo.path("robust"), images, labels, LARGE, budget=20, targets=targets)
    assert result.success.any()
    seen = scores_of_the_bundled_network(result.adversarial).argmax(axis=1)
    np.testing.assert_array_equal(seen == targets, result.success)


@pytest.mark.parametrize("loss", ["cross-entropy", "margin"])
def test_probabilities_are_attacked_like_the_logits_that_they_come_from(bundled: Bundled, loss: Any) -> None:
    def softmax(images: Pixels) -> NDArray[np.float64]:
        logits = scores_of_the_bundled_network(images).astype(np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    images, labels = bundled.images[:4], bundled.labels[:4]
    logits = parsimon.attack(scores_of_the_bundled_network, images, labels, LARGE, budget=20, loss=loss)
    odds = parsimon.attack(softmax, images, labels, LARGE, budget=20, loss=loss, scores="probabilities")
    same(odds, logits)


@pytest.mark.parametrize("at_most", [1, 3, 8, 100])
def test_at_most_so_many_of_the_correctly_classified_are_attacked(bundled: Bundled, at_most: int) -> None:
    result = parsimon.attack(zoo.path("robust"), bundled.images, bundled.labels, SMALL, budget=2, at_most=at_most)
    assert np.flatnonzero(result.attacked).tolist() == np.flatnonzero(bundled.correct)[:at_most].tolist()


def test_the_same_seed_repeats_and_another_does_not() -> None:
    first, again, other = (attack_exactly(seed=seed) for seed in (0, 0, 1))
    same(first, again)
    assert (first.queries != other.queries).any()


@pytest.mark.parametrize("settings", [{"batch_size": 5}, {"in_flight": 1}, {"batch_size": 3, "in_flight": 2}], ids=str)
def test_how_images_are_batched_changes_nothing(settings: dict[str, Any]) -> None:
    crowd = attack_exactly()
    assert len(set(crowd.queries)) > 2  # or there would be nothing to confuse
    same(attack_exactly(**settings), crowd)


@pytest.mark.parametrize(
    ("images", "side", "settings", "expected"),
    [
        (255, 4, {}, 64),
        (256, 4, {}, 128),
        (600, 4, {}, 256),
        (1100, 4, {}, 512),
        (1100, 4, {"at_most": 300}, 128),
        (1100, 4, {"batch_size": 32}, 32),
        (1100, 4, {"in_flight": 100}, 64),
        (1100, 4, {"budget": 10_000}, 128),  # with more in work, what searches remember would take much memory
        (256, 128, {}, 64),  # twice as many would be too large together
    ],
)
def test_many_small_images_are_shown_in_larger_batches(
    images: int, side: int, settings: dict[str, Any], expected: int
) -> None:
    shown: list[int] = []

    def model(batch: Pixels) -> Pixels:
        shown.append(len(batch))
        changed = (batch != 0.5).any(axis=(1, 2, 3)).astype(np.float32)
        return np.stack([2 - 2 * changed, 2 * changed], axis=1)

    pixels = np.full((images, 3, side, side), 0.5, np.float32)
    result = parsimon.attack(model, pixels, np.zeros(images, int), 0.1, attack="random", **settings)
    assert max(shown[-result.counters.calls :]) == expected


def test_the_attack_may_be_chosen(bundled: Bundled) -> None:
    images, labels = bundled.images[:4], bundled.labels[:4]
    published = parsimon.Parsimonious(behaviour="published", block=8)
    result = parsimon.attack(zoo.path("robust"), images, labels, LARGE, budget=30, attack=published)
    assert result.attack is published
    first = parsimon.attack(zoo.path("robust"), images, labels, LARGE, budget=30, attack=published, seed=1)
    same(first, result)  # the published order of blocks hangs on the image's number alone


# --- printing -------------------------------------------------------------------------------------------------------


def test_a_printed_result_fits_80_columns_and_holds_the_numbers(broken: Result) -> None:
    text = str(broken)
    assert max(map(len, text.splitlines())) <= 80
    queries = broken.queries[broken.success]
    rate = 100 * len(queries) / 8
    for number in (f"{rate:.1f}%", f"{queries.mean():,.1f}", f"{np.median(queries):,.1f}", f"{broken.queries.sum():,}"):
        assert re.search(rf"(?<![\d,.]){re.escape(number)}(?![\d,])", text)
    for words in ("Thrift", "eps 128/255", "untargeted", "margin", "60 queries", "Clean accuracy: 80.0%"):
        assert words in text


def test_a_result_without_successes_prints_dashes() -> None:
    def sure(images: Pixels) -> Pixels:
        return np.tile(np.array([5.0, 0.0], np.float32), (len(images), 1))

    images = np.full((3, 3, 8, 8), 0.5, np.float32)
    result = parsimon.attack(sure, images, [0, 0, 0], 0.1, budget=5)
    assert "0.0%" in str(result)
    assert str(result).count(" - ") >= 2


def test_no_progress_is_shown_where_nobody_watches(bundled: Bundled, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = (zoo.path("robust"), bundled.images, bundled.labels, SMALL)
    parsimon.attack(*arguments, budget=3)
    assert capfd.readouterr() == ("", "")
    parsimon.attack(*arguments, budget=3, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "8/8 0.0% fooled" in err
