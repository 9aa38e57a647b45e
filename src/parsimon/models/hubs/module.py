"""A network with the normalisation of its images inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parsimon.models.hubs.loaders import InputSpec


class NormalizedModule(nn.Module):
    """Takes images in [0, 1], normalises them for a network, and returns its scores alone."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, spec: InputSpec) -> None:
        super().__init__()
        self.network = network
        self.image_shape = spec.image_shape
        self.scale, self.reversed_channels = spec.scale, spec.reversed_channels
        for name, values in (("mean", spec.mean), ("deviation", spec.deviation)):
            self.register_buffer(name, torch.tensor(list(values), dtype=torch.float32).reshape(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        if self.reversed_channels:
            images = images.flip(1)
        output = self.network((images * self.scale - self.mean) / self.deviation)
        scores: Tensor = getattr(output, "logits", output)  # `transformers` return an object
        return scores
