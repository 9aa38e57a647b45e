"""Data loaders and datasets as data: the same results as with arrays, read once or when needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import parsimon
from parsimon import InputError
from parsimon.data.pairs import split_pairs
from small_model import IMAGES, LABELS, linear

PAIRS = TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
EXPECTED = parsimon.attack(linear, IMAGES, LABELS, 0.05, budget=60)


class Counting(Dataset[Any]):
    """Counts how often each item is read."""

    def __init__(self) -> None:
        self.reads = [0] * len(IMAGES)

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.reads[index] += 1
        return torch.from_numpy(IMAGES[index]), int(LABELS[index])


class Jittering(Counting):
    """A dataset with a random transform."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = super().__getitem__(index)
        return image * torch.rand(1), label


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(torch.from_numpy(IMAGES), LABELS, strict=True)


@pytest.mark.parametrize(
    "data",
    [
        PAIRS,
        Counting(),
        [*zip(IMAGES, LABELS, strict=True)],
        DataLoader(PAIRS, batch_size=4),
        DataLoader(Stream(), batch_size=4),
    ],
    ids=["TensorDataset", "Dataset", "list", "DataLoader", "stream"],
)
def test_pairs_give_the_results_of_arrays(data: Any) -> None:
    found = parsimon.attack(linear, data, eps=0.05, budget=60)
    assert np.array_equal(found.labels, LABELS)
    assert np.array_equal(found.queries, EXPECTED.queries)
    assert np.array_equal(found.success, EXPECTED.success)
    assert np.array_equal(parsimon.attack(linear, data, None, 0.05, budget=60).queries, EXPECTED.queries)


def test_a_shuffling_loader_is_read_once_and_its_labels_stay_with_their_images() -> None:
    data = Counting()
    loader = DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3))
    grid = parsimon.evaluate(linear, loader, eps=[0.01, 0.02], budget=20)
    assert data.reads == [1] * len(IMAGES)
    result = grid.any_evaluation.any_result
    images = np.asarray(result.images)
    assert not np.array_equal(images, IMAGES)
    assert np.array_equal(result.labels, linear(images).argmax(axis=1))


def test_images_of_a_dataset_are_not_kept() -> None:
    data = Counting()
    images, labels = split_pairs(data, None)
    before = sum(data.reads)
    assert np.array_equal(images[3], IMAGES[3])
    assert np.array_equal(images[3], IMAGES[3])
    assert sum(data.reads) == before + 2
    assert np.array_equal(labels, LABELS)


def test_predictions_may_replace_the_labels_of_pairs() -> None:
    wrong = TensorDataset(torch.from_numpy(IMAGES), (torch.from_numpy(LABELS) + 1) % 10)
    found = parsimon.attack(linear, wrong, "predicted", 0.05, budget=60)
    assert np.array_equal(found.queries, EXPECTED.queries)


def test_labels_may_still_come_beside_a_list_of_images() -> None:
    images = [image[:2] for image in IMAGES]
    assert split_pairs(images, LABELS) == (images, LABELS)
    nested = [image.tolist() for image in images]
    assert split_pairs(nested, LABELS)[0] is nested


@pytest.mark.parametrize(
    ("data", "labels", "sentence"),
    [
        (IMAGES, None, "labels are missing: give one class per image"),
        (list(IMAGES), None, "labels are missing"),
        (PAIRS, LABELS, "Pass the images alone, without labels"),
        (DataLoader(PAIRS), LABELS, "the data loader has labels of its own: leave labels out"),
        (Jittering(), None, "gives another image each time it is read"),
        (DataLoader(TensorDataset(torch.from_numpy(IMAGES))), None, "batch 0 is a list of 1"),
        (DataLoader(TensorDataset(torch.zeros(0, 3, 8, 8), torch.zeros(0))), None, "yields no batch"),
        ([(IMAGES[0], 1), (IMAGES[0], 1, 2)], None, "item 1 is a tuple of 3"),
    ],
)
def test_what_is_no_data_is_refused_with_a_sentence(data: Any, labels: Any, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        parsimon.attack(linear, data, labels, 0.02)
    assert sentence in str(raised.value)


def test_a_missing_radius_is_a_sentence() -> None:
    with pytest.raises(InputError, match=r"eps is missing: give the radius of the ball, as in eps=8/255"):
        parsimon.attack(linear, PAIRS)


def test_torch_is_not_imported_for_pairs() -> None:
    code = (
        "import sys, numpy as np, parsimon\n"
        "data = [(np.full((3, 4, 4), i / 9, np.float32), 0) for i in range(9)]\n"
        "parsimon.attack(lambda x: np.stack([x.mean((1, 2, 3)) + 1, x.max((1, 2, 3))], 1), data, eps=0.1, budget=3)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
