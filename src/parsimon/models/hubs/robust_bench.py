"""Networks of RobustBench, which take images in [0, 1]: `NAME`, perhaps with `dataset=imagenet,threat_model=Linf`."""

from __future__ import annotations

from typing import Any

from parsimon.errors import require
from parsimon.models.hubs.wishes import Wishes


def load(name: str, dataset: str = "cifar10", **settings: Any) -> tuple[Any, Wishes]:
    """The network; what it wants of its images, it does itself."""
    network = require("robustbench.utils", "robustbench").load_model(model_name=name, dataset=dataset, **settings)
    return network, Wishes(image_shape=(3, 32, 32) if dataset.startswith("cifar") else None)
