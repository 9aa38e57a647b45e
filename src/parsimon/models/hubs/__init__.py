"""Models of public hubs, by name: `hf:microsoft/resnet-50`, `timm:resnet18`, `torchhub:...`, `robustbench:...`.

A model's own config describes its input (range, mean, deviation, size). The returned module normalises inside, so that
it takes images in [0, 1] and eps is measured in pixels. The hub's library downloads what is missing, into its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from parsimon.errors import InputError, ModelError, ParsimonError, first_line, require
from parsimon.models.hubs import loaders

FORMS = {
    "hf:NAME": "an image classifier of the Hugging Face hub, or a folder where one was saved",
    "timm:NAME": "a network of timm",
    "torchhub:OWNER/REPOSITORY:NAME": "a network of torch.hub",
    "robustbench:NAME": "a network of RobustBench",
}
_LIBRARIES = {  # with their extras; torch.hub is a part of torch
    "hf": ("transformers", "huggingface"),
    "timm": ("timm", "timm"),
    "robustbench": ("robustbench", "robustbench"),
}
Loaded = TypeVar("Loaded")


def is_named(text: str) -> bool:
    """Return whether the name of a model begins with that of a hub."""
    return text.partition(":")[0] in loaders.LOADERS


def open_named(text: str) -> Any:
    """Return the model as a torch module that takes images in [0, 1]."""
    require("torch", "torch")
    from parsimon.models.hubs.module import NormalizedModule

    return NormalizedModule(*_load(loaders.LOADERS[text.partition(":")[0]], text)).eval()


def require_packages(text: str) -> None:
    """Raise if a package that a model of a hub needs is missing, before anything is downloaded."""
    require("torch", "torch")
    if library := _LIBRARIES.get(text.partition(":")[0]):
        require(*library)


def preprocess(text: str) -> str | None:
    """Return how the model's config resizes and crops pictures, as `--preprocess` takes it; None if it does not say."""
    read_spec = loaders.SPECS.get(text.partition(":")[0])
    return None if read_spec is None else _load(read_spec, text).preprocess


def _load(load: Callable[..., Loaded], text: str) -> Loaded:
    """Call a function of `loaders` with the parts of a name."""
    name, *assignments = text.partition(":")[2].split(",")
    if not name:
        forms = "; ".join(f"{form} ({what})" for form, what in FORMS.items())
        raise InputError(f"{text!r} lacks the name of a model: give {forms}")
    settings = dict(_setting(each, text) for each in assignments)
    try:
        return load(name, **settings)
    except ParsimonError:
        raise
    except Exception as error:  # of the network, of the hub, of files, of the model's own code
        raise ModelError(
            f"{text} cannot be loaded: {first_line(error).rstrip('.')}. Check its name; the first download needs the "
            "network."
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
