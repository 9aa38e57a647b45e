"""`--dry-run` of the commands that attack."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from parsimon.cli.output import answer
from parsimon.errors import InputError
from parsimon.runs.estimate import Estimate

DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Do not attack: print the most queries that this can take, and their time and cost."
)
PRICE = click.option(
    "--price-per-1000",
    type=click.FloatRange(0),
    metavar="PRICE",
    help="Price of 1,000 queries, for the cost that --dry-run prints.",
)


def check_price(price_per_1000: float | None, *, dry_run: bool) -> None:
    """Refuse a price that nothing would be multiplied by."""
    if price_per_1000 is not None and not dry_run:
        raise InputError("--price-per-1000 is for the cost that --dry-run prints: add --dry-run, or leave it out")


def show_estimates(estimates: Sequence[Estimate], price_per_1000: float | None) -> None:
    """Print the estimate of each model, or all as JSON."""
    described = [_described(each, price_per_1000) for each in estimates]
    answer(lambda: {"estimates": described}, partial(_print, estimates, price_per_1000))


def _described(estimate: Estimate, price: float | None) -> dict[str, Any]:
    return {
        "model": estimate.model,
        "images": estimate.images,
        "most_queries": estimate.total,
        "attacks": [{"name": name, "most_queries": count} for name, count in estimate.queries.items()],
        "uncharged": estimate.uncharged,
        "seconds": estimate.seconds,
        "seconds_per_query": estimate.seconds_per_query,
        "cost": None if price is None else estimate.cost(price),
    }


def _print(estimates: Sequence[Estimate], price: float | None) -> None:
    for each in estimates:
        print(f"{each.model}: {each}")
        if len(each.queries) > 1:
            print("  " + ", ".join(f"{name} {count:,}" for name, count in each.queries.items()))
        print(f"  Further uncharged queries (clean images, verification): at most {each.uncharged:,}")
        if price is not None:
            print(f"  Cost of all these queries: {each.cost(price):,.2f}")
    if price is not None:
        print("Not included: retries, checks of the model, and images that fill batches.")
    print("An image that is fooled needs fewer queries. The time is the model's alone. Nothing was attacked.")
