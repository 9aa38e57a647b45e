"""Write the tables of docs/benchmarks.md, and of three other pages, from benchmarks/results/*.csv.

python docs/_make/benchmark_tables.py

A test compares the pages with the files.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from _shared import filled
from parsimon.results.defence import ALL

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PAGES = (
    PAGE,
    ROOT / "docs" / "decisions" / "0007-thrift.md",
    ROOT / "docs" / "guides" / "random-models.md",
    ROOT / "docs" / "research" / "engine.md",
)

Row = dict[str, str]
Cell = str | Callable[[Row], str]  # a column of the file, or a function of the row

TASKS = {  # of networks with classes of their own, which see photographs
    "mobilenet-v2": "explicit pictures",
    "mobilenet-v2-wide": "explicit pictures",
    "open-nsfw": "explicit pictures",
    "pp-lcnet": "page orientation",
}


def page(path: Path = PAGE) -> str:
    """Return a page with fresh tables between its markers."""
    return filled(path.read_text(), "benchmark_tables.py", lambda name: TABLES[name]())


def read(name: str) -> list[Row]:
    """Return the rows of a file of results."""
    return list(csv.DictReader((RESULTS / f"{name}.csv").read_text().splitlines()))


def table(rows: list[Row], columns: dict[str, Cell], text: tuple[str, ...] = ()) -> list[str]:
    """Return a table; the first column, and those that `text` names, are aligned to the left."""
    left = {next(iter(columns)), *text}
    lines = [f"| {' | '.join(columns)} |", "|" + "|".join("---" if title in left else "--:" for title in columns) + "|"]
    for row in rows:
        cells = (row[cell] if isinstance(cell, str) else cell(row) for cell in columns.values())
        lines.append(f"| {' | '.join(map(_shown, cells))} |")
    return lines


def between(low: str, high: str) -> Callable[[Row], str]:
    """Return a cell with an interval."""
    return lambda row: f"{_shown(row[low])} to {_shown(row[high])}"


def _shown(cell: str) -> str:
    """Return a cell with separators of thousands."""
    return f"{int(cell):,}" if cell.isdigit() else cell


INTERVAL = between("ratio_low", "ratio_high")


def data_of(row: Row) -> str:
    """Return the data of a network, with its task where that is another one."""
    task = TASKS.get(row["network"])
    return f"photographs; task: {task}" if task else row["data"]


def queries(role: str) -> list[str]:
    """Return the networks of a role, sorted by their ratio."""
    rows = [row for row in read("queries") if row["role"] == role]
    columns: dict[str, Cell] = {
        "network": "network",
        "architecture": "architecture",
        "data": data_of,
        "eps": "eps",
        "images fooled": "fooled",
        "Thrift": "thrift_mean",
        "best rival": "rival_mean",
        "rival": "best_rival",
        "ratio": "ratio",
        "95 % interval": INTERVAL,
    }
    return table(sorted(rows, key=lambda row: float(row["ratio"])), columns, ("architecture", "data", "rival"))


def medians() -> list[str]:
    """Return medians and successes on all networks."""
    columns: dict[str, Cell] = {
        "network": "network",
        "Thrift, median": "thrift_median",
        "lowest median of a rival": "rival_median",
        "Thrift, success in %": "thrift_success",
        "highest success of a rival": "rival_success",
    }
    return table(sorted(read("queries"), key=lambda row: row["role"], reverse=True), columns)


def targeted() -> list[str]:
    columns: dict[str, Cell] = {
        "network": "network",
        "images": "images",
        "Thrift": "thrift_mean",
        "best rival": "rival_mean",
        "rival": "best_rival",
        "ratio": "ratio",
        "95 % interval": INTERVAL,
        "Thrift, success in %": "thrift_success",
        "highest success of a rival": "rival_success",
    }
    return table(read("queries-targeted"), columns, ("rival",))


def labels() -> list[str]:
    columns: dict[str, Cell] = {
        "network": "network",
        "data": "data",
        "eps": "eps",
        "budget": "budget",
        "images fooled": "fooled",
        "Haggle": "haggle_mean",
        "best rival": "rival_mean",
        "rival": "best_rival",
        "ratio": "ratio",
        "95 % interval": INTERVAL,
    }
    return table(read("labels"), columns, ("data", "rival"))


def labels_price() -> list[str]:
    """Return what labels cost: Haggle's mean over that of Thrift, which sees scores."""
    interval = between("price_low", "price_high")
    return table(read("labels"), {"network": "network", "Haggle / Thrift": "price", "95 % interval": interval})


def labels_success() -> list[str]:
    """Return a row per network, with the share of images that Haggle and its rival fooled within some queries."""
    rows: dict[str, Row] = {}
    columns: dict[str, Cell] = {"network": "network"}
    for row in read("labels-success"):
        queries = row["queries"]
        if queries in ("50", "100", "1000"):
            columns |= {
                f"Haggle, {_shown(queries)}": f"haggle {queries}",
                f"rival, {_shown(queries)}": f"rival {queries}",
            }
            cells = {f"haggle {queries}": row["haggle"], f"rival {queries}": row["best_rival"]}
            rows.setdefault(row["network"], {"network": row["network"]}).update(cells)
    return table(list(rows.values()), columns)


def throughput() -> list[str]:
    """Return a row per implementation, with the lowest and the highest seconds of its runs on the EPYC."""
    rows = [row for row in read("throughput") if row["machine"] == "EPYC"]
    kinds = ("attack", "implementation", "model")
    found = []
    for _, same in groupby(rows, key=lambda row: [row[kind] for kind in kinds]):
        runs = sorted(same, key=lambda row: float(row["seconds"]))
        found.append({**runs[0], "runs": str(len(runs)), "most": runs[-1]["seconds"]})
    columns: dict[str, Cell] = {
        "attack": "attack",
        "implementation": "implementation",
        "model": "model",
        "queries": "queries",
        "images shown": "shown",
        "fooled": "fooled",
        "runs": "runs",
        "clock": "clock",
        "seconds, min": "seconds",
        "seconds, max": "most",
    }
    return table(found, columns, ("implementation", "model", "clock"))


def throughput_ratios() -> list[str]:
    columns: dict[str, Cell] = {
        "against": "against",
        "machines": "machines",
        "same torch module, min": "torch_low",
        "same torch module, max": "torch_high",
        "ONNX file, min": "onnx_low",
        "ONNX file, max": "onnx_high",
    }
    return table(read("throughput-ratios"), columns, ("machines",))


def throughput_loop() -> list[str]:
    columns: dict[str, Cell] = {
        "machine": "machine",
        "images": "images",
        "loop, one thread": "loop_one_thread",
        "loop, both cores": "loop_both_cores",
        "parsimon, both cores": "parsimon_both_cores",
        "parsimon, two workers": "parsimon_two_workers",
    }
    return table(read("throughput-loop"), columns)


def overhead() -> list[str]:
    columns: dict[str, Cell] = {
        "attack": "attack",
        "network": "network",
        "machine": "machine",
        "threads": "threads",
        "bare, ms per image": "bare_ms",
        "ratio": "ratio",
        "range of the ratio": INTERVAL,
    }
    return table(read("overhead"), columns, ("network", "machine"))


def accelerators() -> list[str]:
    columns: dict[str, Cell] = {
        "attack": "attack",
        "engine, µs per query": "engine_us",
        "100 µs: wall time, median": "wall_100_median",
        "100 µs: undisturbed": "undisturbed_100",
        "30 µs: undisturbed": "undisturbed_30",
    }
    return table(read("accelerators"), columns)


def memory() -> list[str]:
    return table(
        read("memory"), {"attack": "attack", "images": "images", "queries": "queries", "peak, GiB": "peak_gib"}
    )


def growth() -> list[str]:
    """Return the cost of a query by the number of images, and by their size."""
    columns: dict[str, Cell] = {"images of 32 x 32": "images", "Parsimonious, µs per query": "us_per_query"}
    return table(read("growth-images"), columns)


def growth_size() -> list[str]:
    columns: dict[str, Cell] = {
        "image": lambda row: "{0} x {0}".format(row["side"]),
        "Parsimonious, µs per query": "parsimonious_us",
        "Thrift, µs per query": "thrift_us",
        "one copy, µs": "copy_us",
    }
    return table(read("growth-size"), columns)


def store() -> list[str]:
    columns: dict[str, Cell] = {
        "attack": "attack",
        "queries": "queries",
        "share of the time, %": "share_percent",
        "ms per model call": "ms_per_call",
        "folder, kB": "folder_kb",
        "bytes per success": "bytes_per_success",
    }
    return table(read("store"), columns)


def store_large() -> list[str]:
    columns: dict[str, Cell] = {
        "attack": "attack",
        "images": "images",
        "successes": "successes",
        "folder, MB": "folder_mb",
    }
    return table(read("store-large"), columns)


def servers() -> list[str]:
    columns: dict[str, Cell] = {
        "server": "server",
        "protocol": "protocol",
        "wall time, ratio": "wall_ratio",
        "processor time, ratio": "processor_ratio",
        "requests": "requests",
        "faults": "faults",
    }
    return table(read("servers"), columns, ("protocol",))


def workers() -> list[str]:
    columns: dict[str, Cell] = {
        "workers": "backend",
        "one, queries per second": "one_worker",
        "two, queries per second": "two_workers",
        "speed-up": "times",
        "speed-up of bare model calls": "bare_times",
    }
    return table(read("workers"), columns)


def workers_cost() -> list[str]:
    columns: dict[str, Cell] = {
        "what": lambda row: f"{row['cost']}, {row['unit']}",
        "processes": "processes",
        "Ray": "ray",
    }
    return table(read("workers-cost"), columns)


def square() -> list[str]:
    columns: dict[str, Cell] = {
        "implementation": "implementation",
        "success, %": "success",
        "range of success": between("success_low", "success_high"),
        "mean queries": "mean",
        "range of the mean": between("mean_low", "mean_high"),
        "median": "median",
        "range of the median": between("median_low", "median_high"),
    }
    return table(read("square-peers"), columns)


def hopskipjump() -> list[str]:
    """Return the share of fooled images by implementation, a column per number of queries."""
    rows = []
    for name, own in groupby(read("hopskipjump-peers"), key=lambda row: row["implementation"]):
        rows.append({"implementation": name, **{row["queries"]: row["fooled"] for row in own}})
    columns: dict[str, Cell] = {"% fooled within": "implementation"}
    columns |= {f"{int(name):,} queries": name for name in rows[0] if name != "implementation"}
    return table(rows, columns)


def ablation(network: str) -> list[str]:
    """Return a row per part of Thrift that is switched off."""
    columns: dict[str, Cell] = {
        "": lambda row: f"`{row['without']}=false`" if row["without"] else "Thrift",
        "mean queries": "mean",
        "ratio": "ratio",
        "95 % interval": lambda row: INTERVAL(row) if row["ratio"] else "",
        "median": "median",
        "success, %": "success",
    }
    return table([row for row in read("thrift-ablation") if row["network"] == network], columns)


RANDOM_MODELS = {
    "noise": "`robust` behind noise of 0.02",
    "dropout": "digits, dropout of a quarter and a half",
    "dropout-2": "the same, a second run",
}


def random_models() -> list[str]:
    """Return a row per random model and attack, and one about both attacks together."""
    columns: dict[str, Cell] = {
        "network": lambda row: RANDOM_MODELS[row["network"]],
        "eps": "eps",
        "clean, %": lambda row: percent(row["clean_accuracy"]),
        "attack": lambda row: row["attack"].replace(ALL, "both"),
        "robust, %": lambda row: percent(row["robust_accuracy"]),
        "95 % interval": lambda row: percents(row["robust_low"], row["robust_high"]),
        "mean error rate, %": lambda row: percent(row["error_rate"]),
        "its interval": lambda row: percents(row["error_rate_low"], row["error_rate_high"]),
        "undecided": "undecided",
    }
    return table(read("random-models"), columns, ("attack",))


EVENTS = {  # of simulations, with what bounds their share
    "useless change kept": ("a change without effect is kept, for six kinds of noise", True),
    "early end": ("an attack ends early where half of the draws err", True),
    "improvement of 5 kept": ("an improvement of five standard deviations is kept", False),
    "improvement of 1 kept": ("an improvement of one standard deviation is kept", False),
    "improvement of 1 kept, 16": ("the same, with 16 repeats", False),
}


def event_of(row: Row) -> str:
    """Return the event that a row is about, with its repeats if there are several."""
    return row["event"] if row["repeats"] == "1" else f"{row['event']}, {row['repeats']}"


def random_search() -> list[str]:
    """Return a row per event that was simulated, with its lowest and highest share."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in read("random-search"):
        found[event_of(row)].append(row)
    rows = []
    for event, same in found.items():
        shares = sorted((row["share"] for row in same), key=float)
        what, bounded = EVENTS[event]
        rows.append(
            {
                "event": what,
                "bound": f"{100 * float(same[0]['error_rate']):g}" if bounded else "",
                "measured": percent(shares[0]) if len(same) == 1 else percents(shares[0], shares[-1]),
            }
        )
    return table(rows, {"event": "event", "bound, %": "bound", "measured, %": "measured"})


def percent(share: str) -> str:
    """Return a share in %; nothing where there is none."""
    return f"{100 * float(share):.1f}" if share else ""


def percents(low: str, high: str) -> str:
    """Return an interval in %; nothing where there is none."""
    return f"{percent(low)} to {percent(high)}" if low else ""


TABLES: dict[str, Callable[[], list[str]]] = {
    "later": lambda: queries("later"),
    "held-out": lambda: queries("held-out"),
    "development": lambda: queries("development"),
    "medians": medians,
    "targeted": targeted,
    "labels": labels,
    "labels-price": labels_price,
    "labels-success": labels_success,
    "throughput": throughput,
    "throughput-ratios": throughput_ratios,
    "throughput-loop": throughput_loop,
    "overhead": overhead,
    "accelerators": accelerators,
    "memory": memory,
    "growth": growth,
    "growth-size": growth_size,
    "store": store,
    "store, large": store_large,
    "servers": servers,
    "workers": workers,
    "workers-cost": workers_cost,
    "square": square,
    "hopskipjump": hopskipjump,
    "ablation, robust": lambda: ablation("robust"),
    "ablation, standard": lambda: ablation("standard"),
    "random-models": random_models,
    "random-search": random_search,
}


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path))
