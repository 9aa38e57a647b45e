"""One file an attack. Adding one is its file and a line here."""

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

# By the names that people type.
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
