"""Every attack in the form of another library, for scripts that use that library.

    from parsimon.adapters.foolbox import Parsimonious         # attack(fmodel, images, labels, epsilons=8 / 255)
    from parsimon.adapters.art import Parsimonious             # Parsimonious(classifier, eps=8 / 255).generate(x, y)
    from parsimon.adapters.torchattacks import Parsimonious    # Parsimonious(model, eps=8 / 255)(images, labels)

Each module has every attack of `parsimon.attacks` under its own name, made when it is first asked for. What a call
finds is what `parsimon.attack` finds on the same images, bit for bit.
"""
