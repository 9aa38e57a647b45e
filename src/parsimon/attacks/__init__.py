"""One file an attack."""

from parsimon.attacks.parsimonious import Parsimonious

__all__ = ["Parsimonious"]
