"""Open the model and the data of a run, with pictures preprocessed as its model expects them."""

from __future__ import annotations

from typing import Any

from parsimon import catalogue
from parsimon.core.model import Model
from parsimon.core.threat import Scores, Threat
from parsimon.core.types import ImageSource
from parsimon.data.base import Data
from parsimon.data.named import PICTURES, open_data
from parsimon.data.pictures import open_preprocess
from parsimon.defences import defended
from parsimon.defences.base import changes_scores
from parsimon.errors import require
from parsimon.models import as_model, hubs
from parsimon.runs.config import RunConfig
from parsimon.runs.score_kind import kind_of, with_known_scores


def require_packages(model: str, data: str, *, white_box: bool = False) -> None:
    """Raise if a package that a run needs is missing, before anything is downloaded."""
    if data.startswith("hf:"):
        require("datasets", "huggingface")
    if hubs.is_named(model):
        hubs.require_packages(model)
    elif model in catalogue.networks() or model.endswith(".onnx"):
        require("onnxruntime", "onnx")
        if white_box:  # gradients of ONNX files come from torch
            require("torch", "torch")
            require("onnx", "torch")


def open_defended(model: Any, config: RunConfig) -> tuple[Model, Scores | None]:
    """Open a model behind the defences of a run; also return what it is declared to return, defences included.

    The defences may still have to know what the model behind them returns: see `with_known_scores`.
    """
    opened = defended(as_model(model), config.defence or ())
    # A defence that changes scores says what it returns. The setting is then about the model behind it.
    return opened, opened.returns if changes_scores(opened) else config.scores


def open_model_for(config: RunConfig, images: ImageSource, model: Any = None) -> Model:
    """Open the model of a run on these images behind its defences, or another copy of the model, ready to be called."""
    opened, _ = open_defended(config.model if model is None else model, config)
    opened, _ = with_known_scores(opened, images, _plain_threat(config), config.scores)
    return opened


def kind_returned(config: RunConfig, model: Any, images: ImageSource) -> Scores:
    """Return what the model of a run returns without the run's defences: as declared, or detected from the images."""
    return config.scores or kind_of(as_model(model), images, _plain_threat(config))


def _plain_threat(config: RunConfig) -> Threat:
    return Threat(config.radius, eight_bit=config.eight_bit)


def open_data_for(model: str, text: str, preprocess: str | None) -> Data:
    """Open named data for a model; pictures are preprocessed as `preprocess_for` says."""
    preprocess = preprocess_for(model, text, preprocess)
    return open_data(text, None if preprocess is None else open_preprocess(preprocess))


def preprocess_for(model: str, text: str, preprocess: str | None) -> str | None:
    """Return the preprocessing of named data: the user's, or that of the model's card or config for pictures."""
    form = (catalogue.data_place(text) or text).partition(":")[0]
    if preprocess is not None or form not in PICTURES:
        return preprocess
    return catalogue.preprocess(model) or hubs.preprocess(model)
