"""One loader per hub: each returns a network and the description of its input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsimon.errors import InputError, ModelError, require

Side = int | tuple[int, int]

_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers, which the configs of transformers hold
_UNCROPPED_FROM = 384  # ConvNeXt's processor, which ResNets use too, crops smaller sizes only


@dataclass(frozen=True)
class InputSpec:
    """The input of a network, as its config describes it.

    Attributes:
        mean: Subtracted from each channel, or from all.
        deviation: The divisor of each channel after that.
        scale: The factor of images in [0, 1] before that.
        reversed_channels: Whether channels come as blue, green, red.
        image_shape: (channels, rows, columns), if it is fixed.
        preprocess: How pictures are resized and cropped, as `--preprocess` takes it.
    """

    mean: Sequence[float] = (0.0,)
    deviation: Sequence[float] = (1.0,)
    scale: float = 1.0
    reversed_channels: bool = False
    image_shape: tuple[int, int, int] | None = None
    preprocess: str | None = None


def _preprocess(resize: Side | None, crop: Side | None, interpolation: str) -> str | None:
    """Return resizing and cropping as `--preprocess` takes it; None if it lacks the interpolation."""
    if interpolation not in ("bilinear", "bicubic"):
        return None
    steps = [(name, side) for name, side in (("resize", resize), ("crop", crop)) if side is not None]
    parts = [f"{name}={f'{side[0]}x{side[1]}' if isinstance(side, tuple) else side}" for name, side in steps]
    return ",".join([*parts, f"interpolation={interpolation}"])


# --- Hugging Face ---------------------------------------------------------------------------------------------------


def load_hugging_face(name: str, **settings: Any) -> tuple[Any, InputSpec]:
    """Load an image classifier in single precision. No code of its repository is run."""
    library = require("transformers", "huggingface")
    network = library.AutoModelForImageClassification.from_pretrained(name, trust_remote_code=False, **settings)
    return network.float(), hugging_face_spec(name)


def hugging_face_spec(name: str, **_: Any) -> InputSpec:
    """Read the config of its image processor."""
    library = require("transformers", "huggingface")
    config = library.AutoConfig.from_pretrained(name, trust_remote_code=False)
    processor = library.AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
    return spec_of_processor(processor.to_dict(), getattr(config, "num_channels", 3))


def spec_of_processor(config: Mapping[str, Any], channels: int) -> InputSpec:
    """Read the steps of an image processor: resize, crop, rescale, normalise."""
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
    return InputSpec(
        mean=[offset + mean for mean in (config["image_mean"] if normalise else [0.0])],
        deviation=config["image_std"] if normalise else [1.0],
        scale=255 * config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 255.0,
        reversed_channels=bool(config.get("do_flip_channel_order", False)),
        image_shape=None if seen is None else (channels, *seen),
        preprocess=_preprocess(resize, crop, _INTERPOLATIONS.get(config.get("resample", 2), "")),
    )


def _side(size: Any) -> Side | None:
    if isinstance(size, int):
        return size
    if "height" in size:
        return int(size["height"]), int(size["width"])
    return int(size["shortest_edge"]) if "shortest_edge" in size else None


# --- timm -----------------------------------------------------------------------------------------------------------


def load_timm(name: str, **settings: Any) -> tuple[Any, InputSpec]:
    """Load a network with pretrained weights, or with those of `checkpoint_path=FILE`."""
    library = require("timm", "timm")
    network = library.create_model(name, **{"pretrained": "checkpoint_path" not in settings, **settings})
    return network, spec_of_timm(library.data.resolve_model_data_config(network))


def timm_spec(name: str, **_: Any) -> InputSpec:
    library = require("timm", "timm")
    return spec_of_timm(library.data.resolve_model_data_config(library.create_model(name, pretrained=False)))


def spec_of_timm(config: Mapping[str, Any]) -> InputSpec:
    """Read a config of timm: `crop_pct` is the part of the resized picture that is cropped."""
    channels, rows, columns = config["input_size"]
    resize = math.floor(min(rows, columns) / config.get("crop_pct", 1.0))
    side = (resize, resize) if config.get("crop_mode") == "squash" else resize
    return InputSpec(
        mean=config["mean"],
        deviation=config["std"],
        image_shape=(channels, rows, columns),
        preprocess=_preprocess(side, (rows, columns), config.get("interpolation", "bilinear")),
    )


# --- torch.hub and RobustBench --------------------------------------------------------------------------------------


def load_torch_hub(name: str, mean: Any = None, std: Any = None, **settings: Any) -> tuple[Any, InputSpec]:
    """Load `OWNER/REPOSITORY:NAME`, or `FOLDER:NAME` with a hubconf.py in the folder.

    The repository's code is run; torch.hub asks whether it is trusted, and remembers. A network without a config such
    as timm's needs `mean=0.485/0.456/0.406,std=0.229/0.224/0.225`, or `mean=0,std=1` if it takes images in [0, 1].
    Other settings go to the function that builds it: `pretrained=true`, `weights=DEFAULT`.
    """
    hub = require("torch.hub", "torch")
    repository, _, entry = name.rpartition(":")
    if not repository:
        raise InputError(f"a network of torch.hub is named torchhub:OWNER/REPOSITORY:NAME; got {name!r}")
    source = "local" if Path(repository).is_dir() else "github"
    try:
        network = hub.load(repository, entry, source=source, trust_repo="check", **settings)
    except EOFError:
        raise ModelError(
            f"torch.hub runs the code of {repository} and asks whether you trust it, which needs a terminal: load it "
            "once in one"
        ) from None
    config = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None)
    if mean is not None and std is not None:
        return network, InputSpec(_numbers(mean), _numbers(std))
    if isinstance(config, dict) and {"mean", "std", "input_size"} <= set(config):
        return network, spec_of_timm(config)
    raise InputError(
        f"torch.hub does not describe the input of {name}: add it, as in {name},mean=0.485/0.456/0.406,"
        "std=0.229/0.224/0.225 (ImageNet's), or mean=0,std=1 if it takes images in [0, 1]"
    )


def _numbers(text: Any) -> list[float]:
    """Read `0.485/0.456/0.406`, or one number for all channels."""
    try:
        return [float(part) for part in str(text).split("/")]
    except ValueError:
        raise InputError(f"mean and std are numbers with slashes between, one per channel; got {text!r}") from None


def load_robust_bench(name: str, dataset: str = "cifar10", **settings: Any) -> tuple[Any, InputSpec]:
    """Load a network, which normalises inside; settings are `dataset=imagenet,threat_model=Linf`."""
    network = require("robustbench.utils", "robustbench").load_model(model_name=name, dataset=dataset, **settings)
    return network, InputSpec(image_shape=(3, 32, 32) if dataset.startswith("cifar") else None)


LOADERS: dict[str, Callable[..., tuple[Any, InputSpec]]] = {
    "hf": load_hugging_face,
    "timm": load_timm,
    "torchhub": load_torch_hub,
    "robustbench": load_robust_bench,
}
SPECS: dict[str, Callable[..., InputSpec]] = {"hf": hugging_face_spec, "timm": timm_spec}
