"""Networks of torch.hub: `OWNER/REPOSITORY:NAME`, or `FOLDER:NAME` with a hubconf.py in the folder.

torch.hub has no place for what a network wants of its images, so it must be said, unless the network carries a config
as timm's do: `mean=0.485/0.456/0.406,std=0.229/0.224/0.225`, or `mean=0,std=1` for one that takes images in [0, 1].
Other settings go to the function that builds it: `pretrained=true`, `weights=DEFAULT`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parsimon.errors import InputError, ModelError, require
from parsimon.models.hubs.pytorch_image_models import of_config
from parsimon.models.hubs.wishes import Wishes


def load(name: str, mean: Any = None, std: Any = None, **settings: Any) -> tuple[Any, Wishes]:
    """The network. Its repository's code is run; torch.hub asks whether that is trusted, and remembers."""
    hub = require("torch.hub", "torch")
    repository, _, entry = name.rpartition(":")
    if not repository:
        raise InputError(f"a network of torch.hub is named torchhub:OWNER/REPOSITORY:NAME; got {name!r}")
    source = "local" if Path(repository).is_dir() else "github"
    try:
        network = hub.load(repository, entry, source=source, trust_repo="check", **settings)
    except EOFError:
        raise ModelError(
            f"torch.hub runs the code of {repository}, and asks whether you trust it, which nobody can answer here: "
            "load it once in a terminal"
        ) from None
    config = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None)
    if mean is not None and std is not None:
        return network, Wishes(_numbers(mean), _numbers(std))
    if isinstance(config, dict) and {"mean", "std", "input_size"} <= set(config):
        return network, of_config(config)
    raise InputError(
        f"torch.hub does not say what {name} wants of its images: add it, as in {name},mean=0.485/0.456/0.406,"
        "std=0.229/0.224/0.225 (ImageNet's), or mean=0,std=1 if it takes them in [0, 1]"
    )


def _numbers(text: Any) -> list[float]:
    """`0.485/0.456/0.406`, or one number for all channels."""
    try:
        return [float(part) for part in str(text).split("/")]
    except ValueError:
        raise InputError(f"mean and std are numbers with slashes between, one for each channel; got {text!r}") from None
