"""What a second query of every success found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verification:
    """What the second look at an attack's successes found.

    Attributes:
        queried: How many successes were queried again, once each.
        failed: The images whose success does not hold.
    """

    queried: int
    failed: tuple[int, ...] = ()

    @property
    def held(self) -> int:
        return self.queried - len(self.failed)
