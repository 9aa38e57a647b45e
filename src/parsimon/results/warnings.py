"""Warnings on results: signs that a robust accuracy says more about the scores than about the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parsimon.results.result import Result

_FLAT_SHARE = 0.05  # of the attacked images
# Black-box attacks find images that a white-box one missed by chance: at least two, and a share of those it attacked.
_LEAST_MISSED, _MISSED_SHARE = 2, 0.05


def warnings_of(results: Mapping[str, Result]) -> tuple[str, ...]:
    """Return one sentence for each reason to doubt the results of attacks on the same model."""
    if not results:
        return ()
    clean = next(iter(results.values())).clean
    return (*clean.warnings, *_flat(results), *_masked(results), *_random(results))


def _flat(results: Mapping[str, Result]) -> Iterator[str]:
    """Warn of attacks whose loss never moved: they had nothing to climb."""
    counts = {name: sum(each.flat for each in result.outcomes) for name, result in results.items()}
    named = [
        f"{name} {count:,} of {len(results[name].outcomes):,}"
        for name, count in counts.items()
        if count and count >= _FLAT_SHARE * len(results[name].outcomes)
    ]
    if named:
        yield (
            f"The loss did not move on some images ({', '.join(named)}): the model's scores did not react to the "
            "attack. That is no evidence of robustness."
        )


def _masked(results: Mapping[str, Result]) -> Iterator[str]:
    """Warn of images that a black-box attack fooled and a white-box attack did not."""
    black_box = {name: result for name, result in results.items() if not result.attack.white_box}
    fooled = {each.index for result in black_box.values() for each in result.outcomes if each.success}
    for name, result in results.items():
        if not result.attack.white_box:
            continue
        finished = [each for each in result.outcomes if each.ended != "interrupted"]
        missed = sum(each.index in fooled and not each.success for each in finished)
        if missed >= max(_LEAST_MISSED, _MISSED_SHARE * len(finished)):
            both = sum(each.index in fooled for each in finished)
            own = sum(each.success for each in finished)
            yield (
                f"{' and '.join(black_box)} fooled {both:,} of {len(finished):,} images without gradients, and {name} "
                f"{own:,} with them; {missed:,} of the former withstood {name}. The gradients may be masked: do not "
                f"trust what {name} leaves."
            )


def _random(results: Mapping[str, Result]) -> Iterator[str]:
    """Warn of successes that did not hold on their second query."""
    failed = {
        name: f"{name} {len(result.verification.failed):,} of {result.verification.queried:,}"
        for name, result in results.items()
        if result.verification is not None and result.verification.failed
    }
    if failed:
        yield (
            f"Some successes do not hold ({', '.join(failed.values())}). Are the model's responses random, or do they "
            "depend on the other images in the batch?"
        )
