"""Models of public hubs, by name: `hf:microsoft/resnet-50`, `timm:resnet18`, `torchhub:...`, `robustbench:...`.

What a model wants of its images (range, mean, deviation, size) comes from its own config. The module that is returned
does it inside, so that it takes images in [0, 1] and the ball is measured in pixels. What is not on this machine yet is
fetched by the hub's own library, into that library's own cache.
"""

from __future__ import annotations

import importlib
from typing import Any

from parsimon.errors import InputError, ModelError, ParsimonError, first_line, require

FORMS = {
    "hf:NAME": "an image classifier of the Hugging Face hub, or a folder where one was saved",
    "timm:NAME": "a network of timm",
    "torchhub:OWNER/REPOSITORY:NAME": "a network of torch.hub",
    "robustbench:NAME": "a network of RobustBench",
}

_LOADERS = {
    "hf": "hugging_face",
    "timm": "pytorch_image_models",
    "torchhub": "torch_hub",
    "robustbench": "robust_bench",
}


def is_named(text: str) -> bool:
    """Whether a model is named as one of a hub."""
    return text.partition(":")[0] in _LOADERS


def open_named(text: str) -> Any:
    """The model that is named, as a torch module that takes images in [0, 1]."""
    require("torch", "torch")
    from parsimon.models.hubs.module import FromPixels

    return FromPixels(*_called("load", text)).eval()


def preprocess(text: str) -> str | None:
    """How the model's config says that pictures are resized and cropped; None of models whose config does not say."""
    if text.partition(":")[0] not in ("hf", "timm"):
        return None
    told: str | None = _called("wishes", text).preprocess
    return told


def _called(function: str, text: str) -> Any:
    """What a hub's module answers, or a sentence about why it does not."""
    hub, _, rest = text.partition(":")
    name, *assignments = rest.split(",")
    if not name:
        raise InputError(
            f"{text!r} lacks the name of a model: give " + "; ".join(f"{f} ({w})" for f, w in FORMS.items())
        )
    settings = dict(_setting(each, text) for each in assignments)
    try:
        return getattr(importlib.import_module(f"{__name__}.{_LOADERS[hub]}"), function)(name, **settings)
    except ParsimonError:
        raise
    except Exception as error:  # of the network, of the hub, of files, of the model's own code
        raise ModelError(
            f"{text} cannot be loaded: {first_line(error).rstrip('.')}. Check its name; what is not on this machine "
            "yet needs the network once."
        ) from error


def _setting(assignment: str, text: str) -> tuple[str, Any]:
    key, equals, value = (part.strip() for part in assignment.partition("="))
    if not key or not equals:
        raise InputError(
            f"settings of a model are given as key=value, with commas between; got {assignment!r} in {text!r}"
        )
    if value in ("true", "false"):
        return key, value == "true"
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            pass
    return key, value
