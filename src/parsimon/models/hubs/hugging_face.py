"""Image classifiers of the Hugging Face hub, or saved by its library `transformers`."""

from __future__ import annotations

from typing import Any

from parsimon.errors import require
from parsimon.models.hubs.wishes import Side, Wishes, written

_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers, which the configs hold
_UNCROPPED_FROM = 384  # ConvNeXt's processor, which ResNets use too, crops smaller sizes only


def load(name: str, **settings: Any) -> tuple[Any, Wishes]:
    """The network in single precision, and what its image processor does. No code of the repository is run."""
    library = require("transformers", "huggingface")
    network = library.AutoModelForImageClassification.from_pretrained(name, trust_remote_code=False, **settings)
    return network.float(), wishes(name)


def wishes(name: str, **_: Any) -> Wishes:
    """What its image processor's config says."""
    library = require("transformers", "huggingface")
    config = library.AutoConfig.from_pretrained(name, trust_remote_code=False)
    processor = library.AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
    return of_processor(processor.to_dict(), getattr(config, "num_channels", 3))


def of_processor(config: dict[str, Any], channels: int) -> Wishes:
    """The steps of an image processor: resize, crop, rescale, normalise."""
    resize = _side(config["size"]) if config.get("do_resize", True) and config.get("size") else None
    crop = _side(config["crop_size"]) if config.get("do_center_crop") and config.get("crop_size") else None
    if isinstance(resize, int) and config.get("crop_pct"):
        if resize < _UNCROPPED_FROM:
            resize, crop = int(resize / config["crop_pct"]), resize
        else:
            resize = (resize, resize)
    seen = (crop, crop) if isinstance(crop, int) else crop or (resize if isinstance(resize, tuple) else None)
    normalise = config.get("do_normalize", True)
    offset = 1.0 if config.get("rescale_offset") else 0.0
    return Wishes(
        mean=[offset + mean for mean in (config["image_mean"] if normalise else [0.0])],
        deviation=config["image_std"] if normalise else [1.0],
        scale=255 * config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 255.0,
        reversed_channels=bool(config.get("do_flip_channel_order", False)),
        image_shape=None if seen is None else (channels, *seen),
        preprocess=written(resize, crop, _INTERPOLATIONS.get(config.get("resample", 2), "")),
    )


def _side(size: Any) -> Side | None:
    if isinstance(size, int):
        return size
    if "height" in size:
        return int(size["height"]), int(size["width"])
    return int(size["shortest_edge"]) if "shortest_edge" in size else None
