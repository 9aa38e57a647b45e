"""One file per attack, and what two of them share (`mutable_corner`); `registry` parses their names.

A new attack needs its file and a line in `ATTACKS`. Imports core and setsearch.
"""

from parsimon.attacks.bandits import Bandits
from parsimon.attacks.nes import NES
from parsimon.attacks.parsimonious import Parsimonious
from parsimon.attacks.pgd import PGD
from parsimon.attacks.random_corners import RandomCorners
from parsimon.attacks.signhunter import SignHunter
from parsimon.attacks.simba import SimBA
from parsimon.attacks.square import Square
from parsimon.attacks.thrift import Thrift
from parsimon.core.types import Attack

ATTACKS: dict[str, type[Attack]] = {
    "parsimonious": Parsimonious,
    "thrift": Thrift,
    "bandits": Bandits,
    "nes": NES,
    "square": Square,
    "signhunter": SignHunter,
    "simba": SimBA,
    "random": RandomCorners,
    "pgd": PGD,
}

__all__ = [
    "ATTACKS",
    "NES",
    "PGD",
    "Bandits",
    "Parsimonious",
    "RandomCorners",
    "SignHunter",
    "SimBA",
    "Square",
    "Thrift",
]
