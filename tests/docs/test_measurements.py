"""The claims of the pages follow from the recorded measurements."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import benchmark_tables
import defence_tables
import interval_tables
import queries_chart
from parsimon.results.defence import ALL, NO_DEFENCE, UNAWARE
from parsimon.results.statistics import mcnemar

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
BUDGET = 1000
LINK = "https://github.com/parsimon-dev/parsimon/blob/main/"
SUMMARY_ONLY = {"mixer-robust", "vgg", "vgg-robust", "transformer", "transformer-robust", "separable", "conv-mixer"}


def test_the_claim_on_the_first_screen_is_that_of_the_table() -> None:
    rows = queries_chart.read()
    fewer = [row.ratio[0] for row in rows if row.ratio[2] < 1]
    claim = f"on {len(fewer)} of {len(rows)} networks"
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"{claim}: {min(fewer):.2f} to {max(fewer):.2f} of the best rival's mean. On two" in readme
    assert len(rows) - len(fewer) == 2
    assert all(row.ratio[1] < 1 < row.ratio[2] for row in rows if row.ratio[2] >= 1)
    assert f"{claim}. On two" in " ".join((ROOT / "docs" / "index.md").read_text().split())


def test_pages_say_how_many_networks_were_measured_and_how_often_thrift_leads() -> None:
    rows = queries_chart.read()
    networks, fewer = len(rows), sum(row.ratio[2] < 1 for row in rows)
    pages = {path: path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    found = {match for text in pages.values() for match in re.findall(r"(\d+ of )?(\d+) networks\b", text)}
    assert (f"{fewer} of ", f"{networks}") in found
    assert {all_ for ahead, all_ in found if ahead} == {str(networks)}
    rivals = [float(row["thrift_median"]) - float(row["rival_median"]) for row in benchmark_tables.read("queries")]
    behind = [each for each in rivals if each > 0]
    assert (len(behind), max(behind)) == (6, 3)  # "on six networks, by at most three queries"


def test_recorded_ratios_are_those_of_the_means() -> None:
    for row in queries_chart.read():
        assert row.ratio[0] == pytest.approx(row.own / row.rivals, abs=0.006)


def test_raw_queries_give_the_recorded_means() -> None:
    recorded = {row.network: row for row in queries_chart.read()}
    queries: dict[str, dict[str, dict[tuple[str, str], float]]] = defaultdict(lambda: defaultdict(dict))
    with (RESULTS / "queries-raw.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found = float(row["queries"]) if row["success"] == "1" else np.inf
            queries[row["network"]][row["attack"]][row["seed"], row["image"]] = found
    assert queries.keys() == recorded.keys() - SUMMARY_ONLY
    for network, attacks in queries.items():
        assert len({frozenset(each) for each in attacks.values()}) == 1  # the same images and seeds
        fooled = {image for each in attacks.values() for (_, image), count in each.items() if np.isfinite(count)}
        means = {
            name: np.mean([min(count, BUDGET) for (_, image), count in each.items() if image in fooled])
            for name, each in attacks.items()
        }
        own = means.pop("Thrift")
        assert own == pytest.approx(recorded[network].own, abs=0.06)
        assert min(means.values()) == pytest.approx(recorded[network].rivals, abs=0.06)


def test_every_file_of_results_is_linked_and_every_link_has_a_file() -> None:
    linked = set(re.findall(rf"\({re.escape(LINK)}([^)]+)\)", benchmark_tables.PAGE.read_text()))
    assert [name for name in sorted(linked) if not (ROOT / name).is_file()] == []
    elsewhere = {  # their tables are on other pages
        "defences-published.csv",
        "random-models.csv",
        "random-search.csv",
        "thrift-ablation.csv",
        "workers-cost.csv",
    }
    assert {path.name for path in RESULTS.iterdir()} - {Path(name).name for name in linked} == elsewhere


def test_charged_queries_depend_on_neither_backend_nor_workers() -> None:
    charged = defaultdict(set)
    for row in benchmark_tables.read("throughput"):
        if row["queries"]:
            assert not row["shown"] or int(row["shown"]) >= int(row["queries"])
            charged[row["attack"], "paper" in row["implementation"]].add(row["queries"])
    assert len(charged) == 3
    assert all(len(each) == 1 for each in charged.values())


def test_the_comparison_has_the_counts_and_times_of_the_benchmark() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    shared = ("model", "queries", "images shown", "fooled", "seconds, min", "seconds, max")
    title, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in benchmark_tables.throughput())
    squares = [row for row in (dict(zip(title, line, strict=True)) for line in lines) if row["attack"] == "Square"]
    assert len(squares) == 5
    for row in squares:
        assert f"| {' | '.join(row[name] for name in shared)} |" in page, row["implementation"]


def test_the_loop_is_slower_by_the_stated_ratios() -> None:
    page = " ".join(benchmark_tables.PAGE.read_text().split())
    rows = benchmark_tables.read("throughput-loop")
    stated = {
        "loop_one_thread": "{} times as fast as the loop with one",
        "loop_both_cores": "{} times as fast as the loop with both",
    }
    for column, claim in stated.items():
        pairs = [(float(row[column]), float(row["parsimon_both_cores"])) for row in rows if row[column]]
        loop, own = map(sum, zip(*pairs, strict=True))
        assert claim.format(f"{loop / own:.1f}") in page


def test_the_cost_per_query_grows_as_stated() -> None:
    costs = [float(row["us_per_query"]) for row in benchmark_tables.read("growth-images")]
    assert costs[-1] / costs[0] == pytest.approx(1.25, abs=0.05)  # "rises by a quarter"
    sizes = {row["side"]: row for row in benchmark_tables.read("growth-size")}
    assert float(sizes["256"]["copy_us"]) / float(sizes["256"]["parsimonious_us"]) == pytest.approx(1 / 3, abs=0.05)
    shown = [f"{float(sizes[side]['parsimonious_us']):.0f}" for side in ("32", "256")]
    limits = " ".join((ROOT / "docs" / "limits.md").read_text().split())
    assert "it was {} microseconds on CIFAR-10, and {} on images".format(*shown) in limits


def test_haggle_has_the_lowest_mean_on_every_network() -> None:
    rows = benchmark_tables.read("labels")
    assert len(rows) == 8
    assert all(float(row["haggle_mean"]) < float(row["rival_mean"]) for row in rows)
    assert [row["network"] for row in rows if float(row["ratio_high"]) > 1] == ["transformer, robust"]


def test_several_attacks_on_a_random_model_leave_no_more_than_each_of_them() -> None:
    networks: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in benchmark_tables.read("random-models"):
        networks[row["network"]][row["attack"]] = row
    assert set(networks) == set(benchmark_tables.RANDOM_MODELS)
    for attacks in networks.values():
        together = attacks.pop(ALL)
        assert float(together["robust_accuracy"]) <= min(float(row["robust_accuracy"]) for row in attacks.values())
        for count in ("queries", "draws"):
            assert int(together[count]) == sum(int(row[count]) for row in attacks.values())
        for row in attacks.values():
            attacked = round(float(row["clean_accuracy"]) * int(row["images"]))
            assert int(row["queries"]) <= attacked * int(row["budget"])
            assert int(row["draws"]) == 100 * attacked


def test_simulated_errors_keep_their_bound() -> None:
    rows = [
        row
        for row in benchmark_tables.read("random-search")
        if benchmark_tables.EVENTS[benchmark_tables.event_of(row)][1]
    ]
    assert len(rows) == 8
    assert all(0 < float(row["share"]) <= float(row["error_rate"]) for row in rows)


def test_the_page_of_defences_says_how_much_of_square_is_naive() -> None:
    rows = [row for row in defence_tables.read(defence_tables.CSV) if row["network"] == "standard"]
    square = {row["attacker"]: row for row in rows if row["defence"] == "noise:cifar10" and row["attack"] == "Square"}
    left = {name: f"{100 * float(row['robust_accuracy']):.1f} %" for name, row in square.items()}
    naive = square[UNAWARE]
    claims = (
        f'"Square leaves {left[UNAWARE]}" is about a naive attacker.** It made {float(naive["mean_cost"]):.0f} of '
        f"{naive['budget']} queries on average. Square leaves {left['averages 8 draws']} if it averages draws, and "
        f"{left['tests changes']} if it tests changes."
    )
    assert claims in " ".join(defence_tables.PAGE.read_text().split())


def test_the_claim_on_aaa_was_measured_as_published() -> None:
    rows = defence_tables.read(defence_tables.AAA_CSV)
    assert {(row["network"], row["defence"], row["eps"], row["budget"]) for row in rows} == {
        ("standard", "aaa:cifar10", "8/255", "2500")
    }
    behind = [row["attack"] for row in rows if row["attacker"] not in (NO_DEFENCE, ALL) and row["attack"] != ALL]
    assert behind == ["Thrift", "Square,p_init=0.05", "Thrift", "Square,p_init=0.05", "Haggle"]


def test_several_judged_points_lower_the_robust_accuracy_as_stated() -> None:
    page = (ROOT / "docs" / "guides" / "random-models.md").read_text()
    kept = binom.cdf(50, 100, np.linspace(0, 0.9, 100_001))
    for points in (1, 2, 3, 7):
        assert f"| {points} | {100 * np.mean(kept**points):.1f} |" in page


def test_more_images_narrow_the_interval() -> None:
    for accuracy in interval_tables.ACCURACIES:
        widths = [interval_tables.width(accuracy, images) for images in interval_tables.IMAGES]
        assert widths == sorted(widths, reverse=True)


def test_significant_counts_are_those_of_the_exact_test() -> None:
    for changed in (0, 1, 5, 6, 9, 50, 399, 1000):
        most = int(interval_tables.most_behind(np.array([changed]))[0])
        assert most < 0 or mcnemar(most, changed - most) <= interval_tables.LEVEL
        assert mcnemar(most + 1, changed - most - 1) > interval_tables.LEVEL


@pytest.mark.parametrize(("difference", "changed"), [(5, 10), (10, 20), (20, 30)])
def test_the_images_of_a_comparison_have_the_power_in_a_simulation(difference: int, changed: int) -> None:
    images = interval_tables.needed(difference, changed)
    ahead, behind = (changed + difference) / 200, (changed - difference) / 200
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(images, [ahead, behind, 1 - ahead - behind], size=3000)
    pairs, times = np.unique(drawn[:, :2], axis=0, return_counts=True)
    significant = np.average([mcnemar(*pair) < interval_tables.LEVEL for pair in pairs.tolist()], weights=times)
    assert significant == pytest.approx(interval_tables.power(images, difference, changed), abs=0.03)
    assert significant > interval_tables.POWER - 0.03
