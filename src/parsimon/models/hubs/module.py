"""A network with what it wants of its images done inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parsimon.models.hubs.wishes import Wishes


class FromPixels(nn.Module):
    """Takes images in [0, 1], and shows them to a network as its config says; returns its scores alone."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, wishes: Wishes) -> None:
        super().__init__()
        self.network = network
        self.image_shape = wishes.image_shape
        self.scale, self.reversed_channels = wishes.scale, wishes.reversed_channels
        for name, values in (("mean", wishes.mean), ("deviation", wishes.deviation)):
            self.register_buffer(name, torch.tensor(list(values), dtype=torch.float32).reshape(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        if self.reversed_channels:
            images = images.flip(1)
        scores = self.network((images * self.scale - self.mean) / self.deviation)
        told: Tensor = getattr(scores, "logits", scores)  # as `transformers` return them
        return told
