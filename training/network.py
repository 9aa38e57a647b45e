"""The architecture of the bundled networks.

A pre-activation residual network (He et al., *Identity Mappings in Deep Residual Networks*, 2016), narrow enough
to attack in seconds on a laptop.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (torch's own convention)
from torch.nn.utils.fusion import fuse_conv_bn_eval


class PreActivationBlock(nn.Module):
    """Twice norm, relu and conv, plus a shortcut that is projected if the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm2: nn.Module = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        same_shape = stride == 1 and channels_in == channels_out
        self.shortcut = None if same_shape else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        activated = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(activated)
        residual: torch.Tensor = self.conv2(F.relu(self.norm2(self.conv1(activated))))
        return residual + shortcut

    def fold(self) -> None:
        """Merge the second norm, in evaluation mode, into the convolution before it."""
        if isinstance(self.norm2, nn.BatchNorm2d):
            self.conv1 = fuse_conv_bn_eval(self.conv1, self.norm2)
            self.norm2 = nn.Identity()


class PreActivationResNet(nn.Module):
    """A network from images (n, 3, h, w) in [0, 1] to logits (n, classes); it normalises the pixels itself."""

    pixel_mean: torch.Tensor
    pixel_std: torch.Tensor

    def __init__(self, widths: Sequence[int], blocks: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.register_buffer("pixel_mean", torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1))
        self.register_buffer("pixel_std", torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1))
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.stages = nn.Sequential()
        channels = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                self.stages.append(PreActivationBlock(channels, width, stride))
                channels = width
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.stages(self.stem((images - self.pixel_mean) / self.pixel_std))
        logits: torch.Tensor = self.head(F.relu(self.norm(features)).mean((2, 3)))
        return logits

    def folded(self) -> PreActivationResNet:
        """Prepare for inference: set evaluation mode and merge norms into convolutions."""
        self.eval()
        for block in self.stages:
            assert isinstance(block, PreActivationBlock)
            block.fold()
        return self.eval()  # folding creates modules in training mode
