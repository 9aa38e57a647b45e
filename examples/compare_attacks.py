"""Compare three attacks on the same images, and test whether they differ by more than chance."""

import parsimon
from parsimon import zoo

images, labels = zoo.images()
comparison = parsimon.compare(
    "standard", images[:14], labels[:14], 4 / 255, ["parsimonious", "square", "random"], budget=60
)
print(comparison)

for name, pair in comparison.paired().items():
    print(f"fooled by Parsimonious only: {pair.only_a}, by {name} only: {pair.only_b}, p = {pair.success_p:.2f}")
