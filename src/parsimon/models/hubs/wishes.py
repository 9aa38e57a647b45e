"""What a model wants of its images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Side = int | tuple[int, int]


@dataclass(frozen=True)
class Wishes:
    """What a model wants of its images, told from its config.

    Attributes:
        mean: Subtracted from each channel, or from all.
        deviation: By which each channel is divided then.
        scale: By which images in [0, 1] are multiplied before that.
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


def written(resize: Side | None, crop: Side | None, interpolation: str) -> str | None:
    """Resizing and cropping as `--preprocess` takes it; None where it has no word for the interpolation."""
    if interpolation not in ("bilinear", "bicubic"):
        return None
    steps = {"resize": resize, "crop": crop}
    parts = [f"{name}={_written(side)}" for name, side in steps.items() if side is not None]
    return ",".join([*parts, f"interpolation={interpolation}"])


def _written(side: Side) -> str:
    return f"{side[0]}x{side[1]}" if isinstance(side, tuple) else str(side)
