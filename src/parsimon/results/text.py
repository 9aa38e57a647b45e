"""Numbers and names as text: radii, percent, points, p-values, and what stands in front of a model."""

from __future__ import annotations

from collections.abc import Sequence

from parsimon.results.statistics import Interval


def radius_text(eps: float) -> str:
    """Return a radius as a fraction of 255."""
    return f"{eps * 255:.4g}/255"


def percent_ends(interval: Interval) -> tuple[str, str]:
    """Return both ends of an interval of a share, in percent without its sign."""
    low, high = interval
    return f"{100 * low:.1f}", f"{100 * high:.1f}"


def percent_range(interval: Interval) -> str:
    """Return an interval of a share, in percent without its sign: `12.3 to 45.6`."""
    return " to ".join(percent_ends(interval))


def points_text(share: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    return f"{round(100 * share, 1) + 0.0:+.1f}"  # adding 0 to -0.0 gives 0.0


def p_text(value: float | None) -> str:
    """Return a p-value; a dash if there is none."""
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def behind(defence: Sequence[str]) -> str:
    """Return what follows the name of a model: its defences, if it has any."""
    return f" behind {' + '.join(defence)}" if defence else ""


def titled(title: str, defence: Sequence[str]) -> str:
    """Return a title that begins with the defences, if there are any."""
    return f"Behind {' + '.join(defence)}: {title}" if defence else title
