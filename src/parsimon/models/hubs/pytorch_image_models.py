"""Networks of timm, with pretrained weights or those of `checkpoint_path=FILE`."""

from __future__ import annotations

import math
from typing import Any

from parsimon.errors import require
from parsimon.models.hubs.wishes import Wishes, written


def load(name: str, **settings: Any) -> tuple[Any, Wishes]:
    """The network, and what timm says of its images."""
    library = require("timm", "timm")
    network = library.create_model(name, **{"pretrained": "checkpoint_path" not in settings, **settings})
    return network, of_config(library.data.resolve_model_data_config(network))


def wishes(name: str, **_: Any) -> Wishes:
    """What timm says of its images."""
    library = require("timm", "timm")
    return of_config(library.data.resolve_model_data_config(library.create_model(name, pretrained=False)))


def of_config(config: dict[str, Any]) -> Wishes:
    """A config of timm's: the picture is resized so that the share `crop_pct` of it is cropped."""
    channels, rows, columns = config["input_size"]
    resize = math.floor(min(rows, columns) / config.get("crop_pct", 1.0))
    side = (resize, resize) if config.get("crop_mode") == "squash" else resize
    return Wishes(
        mean=config["mean"],
        deviation=config["std"],
        image_shape=(channels, rows, columns),
        preprocess=written(side, (rows, columns), config.get("interpolation", "bilinear")),
    )
