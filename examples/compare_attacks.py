"""Several attacks on the same images, counted one way, and whether their difference is more than chance."""

import parsimon
from parsimon import zoo

images, labels = zoo.images()
comparison = parsimon.compare(
    "standard", images, labels, 4 / 255, ["parsimonious", "square", "random"], budget=60, at_most=12
)
print(comparison)

for name, pair in comparison.paired().items():
    print(f"Parsimonious alone fooled {pair.only_a}, {name} alone {pair.only_b}: p = {pair.success_p:.2f}")
