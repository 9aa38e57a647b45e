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

from parsimon.core.types import Ask, Attack, Corners, Reply, Task
from parsimon.errors import InputError, first_line
from parsimon.testing.model import LARGE, SHAPES, THREATS, Network, Recording, eight_bit
from parsimon.testing.twin import Case, drawn, next_question, within


def _spelled(said: Any) -> Any:
    """A question or a reply as it is now, to be compared with what it is later."""
    if isinstance(said, np.ndarray):
        return said.dtype, said.shape, said.tobytes()
    return tuple(_spelled(part) for part in said) if isinstance(said, tuple | list) else said


def stays_in_the_ball(attack: Attack) -> None:
    """Whatever may end the attack lies in the ball, and what has ended it fools the network."""
    for case in (Case(threat=threat) for threat in THREATS):
        tasks = {task.index: task for task in case.tasks}
        for task in case.tasks:
            context = case.context(task)
            for ask, _ in case.by_hand(attack, task):
                assert ask.eligible_from == math.inf or all(
                    within(shown, context.bounds) for shown in drawn(context, ask.points)
                ), f"{attack} leaves the ball with a question that may end the attack."
        for outcome, pixels in case.together(attack).values():
            if pixels is not None:
                task, shown = tasks[outcome.index], np.frombuffer(pixels, np.float32).reshape(case.network.shape)
                away = np.abs(shown.astype(np.float64) - task.image).max()
                assert away <= case.threat.eps + 1e-7, f"{attack} ends {away} from its image; eps={case.threat.eps}."
                assert within(shown, (np.zeros_like(shown), np.ones_like(shown))), f"{attack} ends outside of [0, 1]."
                fooled = case.fooled(int(case.network(shown[None]).argmax()), task)
                assert fooled, f"{attack} claims a success that does not fool the network."


def is_deterministic_in_its_seed(attack: Attack) -> None:
    """The same seed leads to the same end, and the random states that all code shares are neither read nor changed."""
    before = random.getstate(), np.random.get_state(legacy=False)
    fates = []
    try:
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)
            states = repr((random.getstate(), np.random.get_state()))
            fates.append(Case().alone(attack))
            assert states == repr((random.getstate(), np.random.get_state())), (
                f"{attack} draws from a random state that all code shares, not from the rng that it is given."
            )
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    assert fates[0] == fates[1], f"{attack} comes to two different ends on the same seed."


def asks_the_same_after_the_same_replies(attack: Attack) -> None:
    """A search that is told what another was told asks what the other asked: resuming rests on this."""
    for case in (Case(threat=threat) for threat in THREATS[::3]):
        for task in case.tasks:
            recorded = [(_spelled(ask), deepcopy(reply)) for ask, reply in case.by_hand(attack, task)]
            search = case.search(attack, task)
            reply: Reply | None = None
            for asked, told in recorded:
                assert _spelled(next_question(search, reply)) == asked, (
                    f"{attack} asks something else when it is told the same again, so it could not be resumed."
                )
                reply = told


def does_not_depend_on_its_company(attack: Attack) -> None:
    """An image's fate is the same in batches of any size, beside any other images, in any order, and alone."""
    case = Case()
    alone = case.alone(attack)
    for batch_size, in_flight in product((1, 7, 64), (1, 3, 256)):
        where = f"with batch_size={batch_size} and in_flight={in_flight}"
        case.hold(attack, alone, where, batch_size=batch_size, in_flight=in_flight, backwards=in_flight == 3)
    case = Case(Network(LARGE))
    with suppress(InputError):  # it may refuse them
        case.hold(attack, case.alone(attack), "on large images", batch_size=2, in_flight=5)


def is_counted_exactly(attack: Attack) -> None:
    """The engine's outcomes are those of counting by hand."""
    for case in (Case(threat=threat) for threat in THREATS):
        case.hold(attack, case.alone(attack), f"under {case.threat}")


def never_goes_past_its_budget(attack: Attack) -> None:
    """The model is shown what is counted and no more, and what is free has a bound."""
    for budget in (1, 2, 3, 17, 100):
        Case(budget=budget).alone(attack)  # which bounds what is free
        network = Recording(SHAPES[0])
        outcomes = [fate[0] for fate in Case(network, budget=budget).together(attack, batch_size=1).values()]
        for outcome in outcomes:
            assert outcome.queries <= budget, f"{attack} was charged {outcome.queries} queries on a budget of {budget}."
            assert outcome.ended != "budget" or outcome.queries == budget, f"{attack} ended before its budget did."
        counted = sum(outcome.queries + outcome.uncharged for outcome in outcomes)
        assert len(network.rows) == counted, f"{attack} showed {len(network.rows)} images; {counted} were counted."


def takes_images_of_any_shape(attack: Attack) -> None:
    """Grey or colour, odd, narrow, in 8 bits or not. Any shape but the first may be refused, by an InputError."""
    for shape in SHAPES:
        try:
            for threat in THREATS:
                network = Recording(shape)
                case = Case(network, threat, count=2)
                case.hold(attack, case.alone(attack), f"under {threat}")
                rows = np.stack(network.rows)
                assert not threat.eight_bit or np.array_equal(rows, eight_bit(rows)), (
                    f"{attack} shows pixels that are not k / 255 in 8-bit mode."
                )
        except Exception as error:
            if not isinstance(error, InputError) or shape == SHAPES[0]:
                raise AssertionError(f"{attack} fails on images of shape {shape}: {first_line(error)}") from error


def leaves_its_input_alone(attack: Attack) -> None:
    """Neither its image nor a reply is written to, nor what it has asked for, while its other searches run beside."""

    def attended(case: Case, task: Task) -> Iterator[None]:
        """A search that is not told its replies before all others had a turn."""
        image = task.image.copy()
        said = []
        for ask, reply in case.by_hand(attack, replace(task, image=image)):
            said.append((ask, _spelled(ask), reply, _spelled(reply)))
            yield
            # It may not have been drawn yet.
            assert _spelled(ask) == said[-1][1], f"{attack} writes to what it asks for before it has its reply."
        assert np.array_equal(image, task.image), f"{attack} writes to its image."
        for ask, asked, reply, told in said:
            assert _spelled(reply) == told, f"{attack} writes to a reply."
            if _changed_in_place(ask) is None:
                # Of the next set the canvas paints only what differs from this one.
                assert _spelled(ask) == asked, f"{attack} writes to what it has asked for."

    case = Case()
    for _ in zip_longest(*(attended(case, task) for task in case.tasks)):
        pass


def tells_where_it_changes_a_set(attack: Attack) -> None:
    """Beyond the windows that a question tells of, the set is as the search asked for it before."""
    case = Case()
    for task in case.tasks:
        last, before = None, np.empty(0, np.bool_)
        for points in (_changed_in_place(ask) for ask, _ in case.by_hand(attack, task)):
            if points is None:
                continue
            if points.base is last:
                differs = (points.base != before).reshape(points.grid.cells)
                for window in points.changed or ():
                    differs[window] = False
                assert not differs.any(), f"{attack} changes a set in place where it does not say so."
            last, before = points.base, points.base.copy()


def _changed_in_place(ask: Ask) -> Corners | None:
    """What is asked, if its set may be changed once it was answered."""
    return ask.points if isinstance(ask.points, Corners) and ask.points.changed is not None else None


attack_contract: tuple[Callable[[Attack], None], ...] = (
    stays_in_the_ball,
    is_deterministic_in_its_seed,
    asks_the_same_after_the_same_replies,
    does_not_depend_on_its_company,
    is_counted_exactly,
    never_goes_past_its_budget,
    takes_images_of_any_shape,
    leaves_its_input_alone,
    tells_where_it_changes_a_set,
)


def check_attack(attack: Attack) -> None:
    """Put an attack through every clause."""
    for clause in attack_contract:
        clause(attack)
