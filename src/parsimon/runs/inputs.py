"""Data opened for a model: pictures are preprocessed as the model expects them."""

from __future__ import annotations

from parsimon import catalogue
from parsimon.data.base import Data
from parsimon.data.named import PICTURES, open_data
from parsimon.data.pictures import open_preprocess
from parsimon.models import hubs


def open_data_for(model: str, text: str, preprocess: str | None) -> Data:
    """The data that are named, for a model; pictures as `preprocess_for` says."""
    preprocess = preprocess_for(model, text, preprocess)
    return open_data(text, None if preprocess is None else open_preprocess(preprocess))


def preprocess_for(model: str, text: str, preprocess: str | None) -> str | None:
    """How the data that are named are resized and cropped for a model.

    What is said counts; else pictures are treated as the model's card or config says, if it has one.
    """
    form = (catalogue.data_place(text) or text).partition(":")[0]
    if preprocess is not None or form not in PICTURES:
        return preprocess
    return catalogue.preprocess(model) or hubs.preprocess(model)
