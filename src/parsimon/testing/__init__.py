"""The contract of attacks, as functions that check any attack: the built-in ones, or your own.

With pytest, one test per clause:

    @pytest.mark.parametrize("clause", parsimon.testing.attack_contract, ids=lambda clause: clause.__name__)
    def test_my_attack(clause):
        clause(MyAttack(step=0.1))

Without pytest, all of them: `parsimon.testing.check_attack(MyAttack(step=0.1))`.

A clause that does not hold raises AssertionError with a sentence. The engine is compared with a slow, obvious twin that
evaluates one image at a time and shares no rendering, loss or counting code with it.
"""

from parsimon.testing.clauses import attack_contract, check_attack
from parsimon.testing.model import BUDGET, LABEL_THREATS, SHAPES, THREATS, Network, tasks_for, threats_for

__all__ = [
    "BUDGET",
    "LABEL_THREATS",
    "SHAPES",
    "THREATS",
    "Network",
    "attack_contract",
    "check_attack",
    "tasks_for",
    "threats_for",
]
