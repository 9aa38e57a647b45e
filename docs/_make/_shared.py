"""Shared by the scripts: fill the marked parts of a page, and draw an image as a panel of a picture."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parsimon.report.style import INK, MUTED, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def filled(text: str, script: str, lines_of: Callable[[str], list[str]]) -> str:
    """Return a page with fresh lines in each part that the script makes.

    Such a part stands between `<!-- NAME: made by docs/_make/SCRIPT -->` and `<!-- end -->`. Where a page has only one,
    it needs no name.
    """
    marked = rf"(<!-- (?:(?P<name>[^\n:]+): )?made by docs/_make/{re.escape(script)} -->).*?(<!-- end -->)"

    def fill(part: re.Match[str]) -> str:
        return "\n".join([part[1], "", *lines_of(part["name"] or ""), "", part[3]])

    return re.sub(marked, fill, text, flags=re.DOTALL)


def draw_panel(axes: Axes, pixels: NDArray[np.floating], title: str, caption: str, **style: Any) -> None:
    """Draw an image (rows, columns, channels) with a title above and a caption below; `style` is the caption's."""
    axes.imshow(np.clip(pixels, 0, 1), interpolation="nearest")
    label_panel(axes, title, caption, **style)


def label_panel(axes: Axes, title: str, caption: str, **style: Any) -> None:
    """Frame a panel and write its title and caption."""
    axes.set_title(title, fontsize=7, color=INK, pad=3)
    axes.set_xlabel(caption, color=MUTED, **style)
    frame_panel(axes)


def frame_panel(axes: Axes) -> None:
    """Draw a thin frame instead of ticks and a grid."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=RULE)
