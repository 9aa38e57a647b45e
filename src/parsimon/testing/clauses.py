"""The clauses of the contract."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import product, zip_longest
from typing import Any

import numpy as np

from parsimon.core.types import Ask, Attack, Corners, Reply, Task, next_ask
from parsimon.errors import InputError, first_line
from parsimon.testing.model import LARGE, SHAPES, Labels, Network, Recording, eight_bit, threats_for
from parsimon.testing.twin import Case, rendered, within


def _snapshot(value: Any) -> Any:
    """Return a snapshot of an ask or a reply, to compare it later."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return tuple(_snapshot(part) for part in value) if isinstance(value, tuple | list) else value


def stays_in_the_ball(attack: Attack) -> None:
    """Check that every point that may end the attack lies in the ball, and that successes fool the network.

    A label-only attack may ask for any image in [0, 1].
    """
    label_only = attack.needs == "label"
    ball = "[0, 1]" if label_only else "the ball"
    for case in (Case(threat=threat) for threat in threats_for(attack)):
        tasks = {task.index: task for task in case.tasks}
        for task in case.tasks:
            context = case.context(task)
            bounds = (np.zeros_like(task.image), np.ones_like(task.image)) if label_only else context.bounds
            for ask, _ in case.by_hand(attack, task):
                assert ask.eligible_from == math.inf or all(
                    within(shown, bounds) for shown in rendered(context, ask.points)
                ), f"{attack} leaves {ball} with a point that may end the attack."
        for outcome, pixels in case.by_engine(attack).values():
            if pixels is not None:
                task, shown = tasks[outcome.index], np.frombuffer(pixels, np.float32).reshape(case.network.shape)
                away = np.abs(shown.astype(np.float64) - task.image).max()
                assert away <= case.threat.eps + 1e-7, f"{attack} ends {away} from its image; eps={case.threat.eps}."
                assert within(shown, (np.zeros_like(shown), np.ones_like(shown))), f"{attack} ends outside of [0, 1]."
                fooled = case.fooled(int(case.network(shown[None]).argmax()), task)
                assert fooled, f"{attack} claims a success that does not fool the network."


def is_deterministic_in_its_seed(attack: Attack) -> None:
    """Check that the same seed gives the same outcomes, and that global random states are neither read nor changed."""
    before = random.getstate(), np.random.get_state(legacy=False)
    outcomes = []
    try:
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)
            states = repr((random.getstate(), np.random.get_state()))
            outcomes.append(Case.of(attack).by_twin(attack))
            assert states == repr((random.getstate(), np.random.get_state())), (
                f"{attack} draws from a global random state instead of the rng that it is given."
            )
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    assert outcomes[0] == outcomes[1], f"{attack} has two different outcomes for the same seed."


def asks_the_same_after_the_same_replies(attack: Attack) -> None:
    """Check that equal replies lead to equal asks, which resuming a run relies on."""
    for case in (Case(threat=threat) for threat in threats_for(attack)[::3]):
        for task in case.tasks:
            recorded = [(_snapshot(ask), deepcopy(reply)) for ask, reply in case.by_hand(attack, task)]
            search = case.search(attack, task)
            reply: Reply | None = None
            for asked, sent in recorded:
                assert _snapshot(next_ask(search, reply)) == asked, (
                    f"{attack} asks something else after the same replies, so it could not be resumed."
                )
                reply = sent


def does_not_depend_on_other_images(attack: Attack) -> None:
    """Check that outcomes do not depend on the batch size, on other images or on their order."""
    case = Case.of(attack)
    expected = case.by_twin(attack)
    for batch_size, in_flight in product((1, 7, 64), (1, 3, 256)):
        where = f"with batch_size={batch_size} and in_flight={in_flight}"
        case.compare(attack, expected, where, batch_size=batch_size, in_flight=in_flight, backwards=in_flight == 3)
    case = Case.of(attack, network=Network(LARGE))
    with suppress(InputError):  # it may refuse them
        case.compare(attack, case.by_twin(attack), "on large images", batch_size=2, in_flight=5)


def is_counted_exactly(attack: Attack) -> None:
    """Check that the counts of the engine are those of one query at a time."""
    for case in (Case(threat=threat) for threat in threats_for(attack)):
        case.compare(attack, case.by_twin(attack), f"under {case.threat}")


def never_exceeds_its_budget(attack: Attack) -> None:
    """Check that every evaluated image is counted, and that uncharged ones are bounded."""
    for budget in (1, 2, 3, 17, 100):
        Case.of(attack, budget=budget).by_twin(attack)  # checks the bound
        network = Recording(SHAPES[0])
        case = Case.of(attack, network=network, budget=budget)
        outcomes = [outcome for outcome, _ in case.by_engine(attack, batch_size=1).values()]
        for outcome in outcomes:
            assert outcome.charged <= budget, (
                f"{attack} was charged {outcome.charged} queries with a budget of {budget}."
            )
            assert outcome.ended != "budget" or outcome.charged == budget, (
                f"{attack} ended before its budget was spent."
            )
        counted = sum(outcome.charged + outcome.uncharged for outcome in outcomes)
        assert len(network.rows) == counted, f"{attack} evaluated {len(network.rows)} images; {counted} were counted."


def takes_images_of_any_shape(attack: Attack) -> None:
    """Check grey, colour, odd and narrow images, in 8-bit mode or not; only the first shape must not be refused."""
    for shape in SHAPES:
        try:
            for threat in threats_for(attack):
                network = Recording(shape)
                case = Case(network, threat, count=2)
                case.compare(attack, case.by_twin(attack), f"under {threat}")
                rows = np.stack(network.rows)
                assert not threat.eight_bit or np.array_equal(rows, eight_bit(rows)), (
                    f"{attack} queries pixels that are not k / 255 in 8-bit mode."
                )
        except Exception as error:
            if not isinstance(error, InputError) or shape == SHAPES[0]:
                raise AssertionError(f"{attack} fails on images of shape {shape}: {first_line(error)}") from error


def does_not_modify_its_input(attack: Attack) -> None:
    """Check that it modifies neither its image nor replies nor earlier asks, while other searches run in between."""

    def watched(case: Case, task: Task) -> Iterator[None]:
        """Run a search that receives each reply only after all others had a turn."""
        image = task.image.copy()
        exchanges = []
        for ask, reply in case.by_hand(attack, replace(task, image=image)):
            exchanges.append((ask, _snapshot(ask), reply, _snapshot(reply)))
            yield
            # It may not have been rendered yet.
            assert _snapshot(ask) == exchanges[-1][1], f"{attack} writes to an ask before it has the reply."
        assert np.array_equal(image, task.image), f"{attack} writes to its image."
        for ask, asked, reply, sent in exchanges:
            assert _snapshot(reply) == sent, f"{attack} writes to a reply."
            if _changed_in_place(ask) is None:
                # The canvas paints only the difference to this set.
                assert _snapshot(ask) == asked, f"{attack} writes to an earlier ask."

    case = Case.of(attack)
    for _ in zip_longest(*(watched(case, task) for task in case.tasks)):
        pass


def reports_where_it_changes_a_set(attack: Attack) -> None:
    """Check that a mutable set differs from the previous ask only in the windows that the ask reports."""
    case = Case.of(attack)
    for task in case.tasks:
        last, before = None, np.empty(0, np.bool_)
        for points in (_changed_in_place(ask) for ask, _ in case.by_hand(attack, task)):
            if points is None:
                continue
            if points.base is last:
                differs = (points.base != before).reshape(points.grid.cells)
                for window in points.changed or ():
                    differs[window] = False
                assert not differs.any(), f"{attack} changes a set in place outside the windows that it reports."
            last, before = points.base, points.base.copy()


def needs_no_more_than_labels(attack: Attack) -> None:
    """Check that a label-only attack does the same to a network and to one that returns labels alone."""
    if attack.needs != "label":
        return
    for case in (Case(threat=threat) for threat in threats_for(attack)):
        of_labels = replace(case, network=Labels(case.network.shape), threat=replace(case.threat, scores="labels"))
        of_labels.compare(attack, case.by_engine(attack), "on labels alone")


def _changed_in_place(ask: Ask) -> Corners | None:
    """Return the points of an ask, if its set may be changed in place."""
    return ask.points if isinstance(ask.points, Corners) and ask.points.changed is not None else None


attack_contract: tuple[Callable[[Attack], None], ...] = (
    stays_in_the_ball,
    is_deterministic_in_its_seed,
    asks_the_same_after_the_same_replies,
    does_not_depend_on_other_images,
    is_counted_exactly,
    never_exceeds_its_budget,
    takes_images_of_any_shape,
    does_not_modify_its_input,
    reports_where_it_changes_a_set,
    needs_no_more_than_labels,
)
"""The clauses of the contract: each takes an attack, and raises AssertionError if it breaks the clause."""


def check_attack(attack: Attack) -> None:
    """Check every clause of the contract."""
    for clause in attack_contract:
        clause(attack)
