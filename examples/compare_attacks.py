"""Several attacks on the same images, counted one way, and whether their difference is more than chance."""

import parsimon
from parsimon import zoo

images, labels = zoo.images()
comparison = parsimon.compare(
    "standard", images[:14], labels[:14], 4 / 255, ["parsimonious", "square", "random"], budget=60
)
print(comparison)

for name, pair in comparison.paired().items():
    print(f"Parsimonious alone fooled {pair.only_a}, {name} alone {pair.only_b}: p = {pair.success_p:.2f}")
