"""Write the tables of docs/guides/defences.md from the CSV files of its measurements.

A test compares the page with them.

python docs/_make/defence_tables.py
"""

from __future__ import annotations

import csv
from pathlib import Path

from _shared import filled
from parsimon.results.defence import ALL, NO_DEFENCE, UNAWARE

ROOT = Path(__file__).parents[2]
PAGE, CSV = ROOT / "docs" / "guides" / "defences.md", ROOT / "benchmarks" / "defences.csv"
AAA_CSV = ROOT / "benchmarks" / "results" / "defences-published.csv"
AAA_PUBLISHED = {"Square": "80.59"}  # in the abstract of Chen et al. 2022

Row = dict[str, str]


def page() -> str:
    """Return the page with fresh tables between its markers."""
    rows = read(CSV)

    def table(name: str) -> list[str]:
        if name == "AAA":
            return claims(read(AAA_CSV))
        network, _, detector = name.partition(" ")
        own = [row for row in rows if row["network"] == network]
        return detections(own) if detector else accuracies(own)

    return filled(PAGE.read_text(), "defence_tables.py", table)


def read(path: Path) -> list[Row]:
    """Return the rows of a CSV file."""
    return list(csv.DictReader(path.read_text().splitlines()))


def accuracies(rows: list[Row]) -> list[str]:
    """Return a row per defence: what each attacker leaves, and what all of them together leave.

    An attacker who knows a defence may ignore it. So the last number counts the others, too.
    """
    lines = [
        "| defence | clean | all attackers | 95 % interval | Thrift | Square | adaptive | adaptive attack |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    first = rows[0]["defence"]
    *each, together = [row for row in rows if row["defence"] == first and row["attacker"] == NO_DEFENCE]
    cells = (_percent(each[0]["clean_accuracy"]), *_total(together), *map(_robust, each), "", "")
    lines.append(f"| none | {' | '.join(cells)} |")
    for defence in dict.fromkeys(row["defence"] for row in rows):
        *behind, together = [row for row in rows if row["defence"] == defence and row["attacker"] != NO_DEFENCE]
        assert together["attack"] == ALL, "the last row of a defence is about all attackers"
        thrift, square = (row for row in behind if row["attacker"] == UNAWARE)
        adaptive = min((row for row in behind if row["attacker"] != UNAWARE), key=_left)
        cells = (
            f"`{defence}`",
            _percent(thrift["clean_accuracy"]),
            *_total(together),
            *map(_robust, (thrift, square, adaptive)),
            f"{adaptive['attack']}, {adaptive['attacker']}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def detections(rows: list[Row]) -> list[str]:
    """Return a row per attack that a detector watched."""
    lines = [
        "| attack | attacks flagged, % | first flag | fooled before a flag | cost |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        if row["attacks_flagged"]:
            flag = f"{float(row['median_first_flag']):g}" if row["median_first_flag"] else "-"
            cells = (row["attack"], _percent(row["attacks_flagged"]), flag, row["fooled_unflagged"])
            lines.append(f"| {' | '.join(cells)} | {float(row['mean_cost']):,.0f} |")
    return lines


def claims(rows: list[Row]) -> list[str]:
    """Return a row per attack behind AAA, with the number of its paper where there is one."""
    lines = [
        "| attack | attacker | published, WideResNet-28 | here, `standard` | 95 % interval |",
        "|---|---|--:|--:|--:|",
    ]
    for row in rows:
        if row["attack"] != ALL and row["attacker"] != NO_DEFENCE:
            name = row["attack"].partition(",")[0]
            known = AAA_PUBLISHED.get(name, "") if row["attacker"] == UNAWARE else ""
            cells = (name, row["attacker"], known, _robust(row), _interval(row))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _left(row: Row) -> tuple[float, float]:
    """Order attackers by what they leave, and equal ones by their queries."""
    return float(row["robust_accuracy"]), float(row["mean_of_all"])


def _robust(row: Row) -> str:
    return _percent(row["robust_accuracy"])


def _total(row: Row) -> tuple[str, str]:
    """Return what several attackers together leave, and its interval."""
    return f"**{_robust(row)}**", _interval(row)


def _interval(row: Row) -> str:
    return f"{_percent(row['robust_low'])} to {_percent(row['robust_high'])}"


def _percent(share: str) -> str:
    return f"{100 * float(share):.1f}"


if __name__ == "__main__":
    PAGE.write_text(page())
