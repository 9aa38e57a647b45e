"""Run a targeted attack: every image should become a ship, and every ship an airplane."""

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
        before, after = CLASSES[labels[outcome.index]], CLASSES[outcome.predicted]
        print(f"{before} becomes {after}, with confidence {outcome.confidence:.0%}")
        assert outcome.predicted == targets[outcome.index]
