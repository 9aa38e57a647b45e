"""Attack a torch module in three lines, and check the adversarial images."""

import torch

import parsimon
from parsimon import zoo

images, labels = zoo.images()
model: torch.nn.Module = zoo.module("standard")  # any module from images in [0, 1] to logits

result = parsimon.attack(model, images[:6], labels[:6], eps=8 / 255, budget=100)
print(result)

for index in result.success.nonzero()[0]:
    with torch.no_grad():
        predicted = int(model(torch.from_numpy(result.adversarial[index : index + 1])).argmax())
    print(f"image {index}: class {labels[index]} becomes {predicted} after {result.queries[index]} queries")
    assert predicted != labels[index]
