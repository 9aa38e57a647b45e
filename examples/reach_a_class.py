"""A targeted attack: every picture is to be seen as a ship, and a ship as an airplane."""

import numpy as np

import parsimon
from parsimon import zoo
from parsimon.data.cifar10 import CLASSES

images, labels = zoo.images()
ship, airplane = CLASSES.index("ship"), CLASSES.index("airplane")
targets = np.where(labels == ship, airplane, ship)

result = parsimon.attack("standard", images[:5], labels[:5], eps=16 / 255, targets=targets[:5], budget=400)
print(result)
for outcome in result.outcomes:
    if outcome.predicted is not None:
        print(
            f"{CLASSES[labels[outcome.index]]} is seen as {CLASSES[outcome.predicted]}, {outcome.confidence:.0%} sure"
        )
        assert outcome.predicted == targets[outcome.index]
