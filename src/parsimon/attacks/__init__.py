"""One file per attack, and what several share (`mutable_corner`, `boundary`); `registry` parses their names.

A new attack needs its file and a line in `ATTACKS`. Imports core and setsearch.
"""

from parsimon.attacks.adba import ADBA
from parsimon.attacks.bandits import Bandits
from parsimon.attacks.haggle import Haggle
from parsimon.attacks.hopskipjump import HopSkipJump
from parsimon.attacks.nes import NES
from parsimon.attacks.parsimonious import Parsimonious
from parsimon.attacks.pgd import PGD
from parsimon.attacks.random_corners import RandomCorners
from parsimon.attacks.rays import RayS
from parsimon.attacks.scatter import Scatter
from parsimon.attacks.signflip import SignFlip
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
    "scatter": Scatter,
    "pgd": PGD,
    "haggle": Haggle,
    "rays": RayS,
    "signflip": SignFlip,
    "hopskipjump": HopSkipJump,
    "adba": ADBA,
}

__all__ = [
    "ADBA",
    "ATTACKS",
    "NES",
    "PGD",
    "Bandits",
    "Haggle",
    "HopSkipJump",
    "Parsimonious",
    "RandomCorners",
    "RayS",
    "Scatter",
    "SignFlip",
    "SignHunter",
    "SimBA",
    "Square",
    "Thrift",
]
