"""What every attack must keep, as functions that any attack can be put through: ours, or one of your own.

With pytest, a test for each clause:

    @pytest.mark.parametrize("clause", parsimon.testing.attack_contract, ids=lambda clause: clause.__name__)
    def test_my_attack(clause):
        clause(MyAttack(step=0.1))

Without it, all of them: `parsimon.testing.check_attack(MyAttack(step=0.1))`.

A clause raises AssertionError, with a sentence, where it does not hold. What the engine does in batches is held against
a slow, obvious twin, which asks one image at a time and shares no drawing, no loss and no count with it.
"""

from parsimon.testing.clauses import attack_contract, check_attack
from parsimon.testing.model import BUDGET, SHAPES, THREATS, Network, tasks_for

__all__ = ["BUDGET", "SHAPES", "THREATS", "Network", "attack_contract", "check_attack", "tasks_for"]
