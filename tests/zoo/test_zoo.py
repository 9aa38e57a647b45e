"""Tests of the bundled networks: their cards, and results that do not depend on the images in flight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

import parsimon
from parsimon import InputError, zoo
from parsimon.data import cifar10
from parsimon.models import as_model
from parsimon.models.onnx import OnnxModel
from parsimon.results.statistics import wilson_interval


def accuracy(name: str) -> dict[str, float]:
    measured: dict[str, float] = zoo.card(name)["accuracy_percent_on_10000_test_images"]
    return measured


def test_the_robust_network_is_robust_and_the_standard_one_accurate() -> None:
    assert accuracy("robust")["clean"] >= 66
    assert accuracy("robust")["pgd20"] >= 38
    assert accuracy("standard")["clean"] >= 90


def test_the_networks_take_at_most_four_megabytes() -> None:
    assert sum(zoo.path(name).stat().st_size for name in zoo.NAMES) <= 4_000_000


@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_card_tells_the_truth_about_the_bundled_images(name: str) -> None:
    images, labels = zoo.images()
    hits = int((np.asarray(OnnxModel(zoo.path(name))(images)).argmax(1) == labels).sum())
    low, high = wilson_interval(hits, len(labels), confidence=0.999)
    assert low <= accuracy(name)["clean"] / 100 <= high


@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_card_tells_the_truth_about_pgd(name: str) -> None:
    """20 steps of 2/255 from a random start, on 200 images."""
    network = zoo.module(name)
    images, labels = (torch.from_numpy(array[:200]) for array in zoo.images())
    low, high = (images - 8 / 255).clamp(0, 1), (images + 8 / 255).clamp(0, 1)
    points = low + (high - low) * torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
    for _ in range(20):
        points.requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(network(points), labels), points)
        points = torch.minimum(torch.maximum(points.detach() + 2 / 255 * gradient.sign(), low), high)
    hits = int((network(points).argmax(1) == labels).sum())
    at_least, at_most = wilson_interval(hits, len(labels), confidence=0.999)
    assert at_least - 0.01 <= accuracy(name)["pgd20"] / 100 <= at_most + 0.01


@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_torch_module_has_the_same_weights(name: str) -> None:
    images, _ = zoo.images()
    module = zoo.module(name)
    assert not any(part.training for part in module.modules())
    with torch.no_grad():
        expected = module(torch.from_numpy(images[:64])).numpy()
    assert np.allclose(OnnxModel(zoo.path(name))(images[:64]), expected, atol=1e-4)
    assert zoo.card(name)["weights"] == pytest.approx(sum(each.numel() for each in module.parameters()), rel=0.01)


def test_the_images_are_cifar10s_first_test_images() -> None:
    images, labels = zoo.images()
    assert images.shape == (1000, 3, 32, 32)
    assert images.dtype == np.float32
    assert [cifar10.CLASSES[label] for label in labels[:5]] == ["cat", "ship", "ship", "airplane", "frog"]
    assert np.array_equal(np.rint(images * 255) / np.float32(255), images)
    assert (images[0] * 255).round().astype(int)[:, 0, 0].tolist() == [158, 112, 49]


def test_a_network_that_is_not_bundled_is_named() -> None:
    with pytest.raises(InputError, match=r"the bundled networks are robust and standard; .*; got 'tough'"):
        zoo.path("tough")


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_results_do_not_depend_on_what_is_in_flight(kind: str) -> None:
    images, labels = zoo.images()
    model = as_model(zoo.path("robust") if kind == "onnx" else zoo.module("robust"))
    runs = [
        parsimon.attack(
            model, images[:8], labels[:8], 16 / 255, budget=25, batch_size=4, in_flight=in_flight, progress=False
        )
        for in_flight in (1, 3, 256)
    ]
    assert 0 < runs[0].summary.successes < len(runs[0].outcomes)
    for run in runs[1:]:
        assert run.outcomes == runs[0].outcomes
