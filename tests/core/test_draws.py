"""The keys of draws."""

from __future__ import annotations

import numpy as np

from parsimon.core.draws import Purpose, draw_keys


def test_a_key_is_seed_image_purpose_and_number() -> None:
    """Written out, since stored runs rely on these numbers."""
    assert draw_keys(9, [4, 5], Purpose.CLEAN, 0).tolist() == [[9, 4, 2, 0], [9, 5, 2, 0]]
    assert draw_keys(9, [4, 4, 5], [Purpose.QUERY, Purpose.FRESH, Purpose.AUDIT], [7, 8, 6]).tolist() == [
        [9, 4, 0, 7],
        [9, 4, 1, 8],
        [9, 5, 3, 6],
    ]
    assert draw_keys(9, range(2), Purpose.AUDIT, 3).dtype == np.int64
