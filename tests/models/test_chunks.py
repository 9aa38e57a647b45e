"""A model on a processor is called with so many images at a time, always, so that a row's scores are its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import parsimon
from parsimon import zoo
from parsimon.attacks import PGD
from parsimon.models import as_model
from parsimon.models.chunks import call_in_chunks, images_per_call, start_in_chunks


@pytest.mark.parametrize(
    ("shape", "at_most", "expected"),
    [
        ((3, 32, 32), 64, 64),
        ((3, 32, 32), 16, 16),
        ((1, 28, 28), 64, 64),  # more would fit, but are not wanted
        ((3, 64, 64), 64, 16),
        ((3, 224, 224), 16, 4),  # not even two fit
        ((3, 2000, 2000), 64, 4),
    ],
)
def test_images_in_a_call_by_the_size_of_the_image(shape: tuple[int, ...], at_most: int, expected: int) -> None:
    assert images_per_call(shape, at_most) == expected


@pytest.mark.parametrize("count", [1, 4, 5, 8, 11])
def test_every_call_has_the_same_shape_and_every_row_its_own_result(count: int) -> None:
    shapes = []

    def run(images: Any) -> Any:
        shapes.append(images.shape)
        return images.sum(axis=1)

    images = np.arange(3 * count).reshape(count, 3)
    np.testing.assert_array_equal(call_in_chunks(run, images, 4, np), images.sum(axis=1))
    assert set(shapes) == {(4, 3)}
    assert len(shapes) == -(-count // 4)


def test_calls_may_be_made_side_by_side() -> None:
    meeting = Barrier(2, timeout=30)

    def run(images: Any) -> Any:
        meeting.wait()
        return images.sum(axis=1)

    images = np.arange(21).reshape(7, 3)
    with ThreadPoolExecutor(2) as pool:
        np.testing.assert_array_equal(start_in_chunks(run, images, 4, np, pool.map)(), images.sum(axis=1))


def test_scores_of_a_small_network_do_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    images = zoo.images()[0][:70]
    expected = as_model("robust")(images)
    for cores in ("0", "1", "2", "3"):  # 0: all there are
        monkeypatch.setenv("OMP_NUM_THREADS", cores)
        model: Any = as_model("robust")
        np.testing.assert_array_equal(model(images), expected)
        assert model.backend == "ONNX Runtime, one single-threaded call per core"


@pytest.mark.parametrize("kind", ["ONNX Runtime", "torch"])
def test_scores_do_not_depend_on_how_many_images_are_shown_together(kind: str) -> None:
    model = as_model("robust" if kind == "ONNX Runtime" else zoo.module("robust"))
    images = model.namespace.asarray(zoo.images()[0][:70])
    assert not model.fixed_batch, "nothing is to be filled up for it"
    together = model(images)
    for count in (1, 3, 16, 17, 64, 65):
        np.testing.assert_array_equal(model(images[:count]), together[:count])
        np.testing.assert_array_equal(model(images[70 - count :]), together[70 - count :])


@pytest.mark.parametrize("attack", ["square", PGD()])
def test_results_in_torch_do_not_depend_on_the_size_of_the_batch(attack: Any) -> None:
    images, labels = zoo.images()
    module = zoo.module("robust")
    few, many = (
        parsimon.attack(module, images[:12], labels[:12], 8 / 255, attack=attack, budget=15, batch_size=size)
        for size in (3, 64)
    )
    assert few.outcomes == many.outcomes
    assert [each.confidence for each in few.outcomes] == [each.confidence for each in many.outcomes]
    np.testing.assert_array_equal(few.adversarial, many.adversarial)


def test_a_graph_whose_number_of_images_is_fixed_is_called_with_that(tmp_path: Path) -> None:
    fixed = onnx.load(str(zoo.path("robust")))
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 6
    onnx.save(fixed, str(tmp_path / "six.onnx"))
    images = zoo.images()[0][:8]
    plain, six = as_model("robust")(images), as_model(tmp_path / "six.onnx")(images)
    np.testing.assert_allclose(six, plain, atol=1e-5)


def test_gradients_too_are_those_of_a_call_with_so_many_images() -> None:
    model: Any = as_model(zoo.module("robust"))
    images = torch.from_numpy(zoo.images()[0][:70])
    scores, gradients = model.vjp(images, np.ones_like)
    alone, of_one = model.vjp(images[69:], np.ones_like)
    np.testing.assert_array_equal(alone, scores[69:])
    np.testing.assert_array_equal(of_one, gradients[69:])
