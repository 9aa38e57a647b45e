"""Draw success against queries with confidence bands, and save the figure as PDF for a paper."""

import parsimon
from parsimon import zoo
from parsimon.report import figures

images, labels = zoo.images()
comparison = parsimon.compare("standard", images[:16], labels[:16], 4 / 255, ["parsimonious", "square"], budget=80)
figure = figures.comparison_curves({"standard": comparison}, log=True)
figures.save(figure, "curves.pdf")
print("curves.pdf:", ", ".join(comparison.results))
