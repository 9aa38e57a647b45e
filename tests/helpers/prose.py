"""Check prose against the rules of style: short sentences, few numbers, no words that readers stumble over."""

from __future__ import annotations

import re
from pathlib import Path

MOST_WORDS = 25
MOST_NUMBERS = 2
WIDEST_CODE = 88  # characters that fit beside the navigation at 1280 pixels

STIFF = re.compile(
    r"\b(oracle|besides|of which|(?:is|are|was|were) told|go(?:es)? on|to be had|so many|as it were|"
    r"an? (?:image|core|query|batch) a|asked (?:of|for of)|looks? on|hold(?:s)? to|a thing)\b",
    re.IGNORECASE,
)
_ENDS = re.compile(r"(?<=[.!?:])[\"'”)*_]*\s+(?=[\"'“(*_]*(?:[A-Z0-9`\[]|parsimon\b))")
_SHORT = re.compile(r"\b(e\.g|i\.e|et al|vs|cf|Fig|Eq|No|approx)\.")
_YEAR = re.compile(r"(?:19|20)\d\d")


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs, list items and cells of notes; without code, tables, headings and HTML."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^( *)(```|~~~).*?^\1\2 *$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "\n", text, flags=re.DOTALL)
    text = re.sub(r"\$\$.*?\$\$", " x ", text, flags=re.DOTALL)
    found: list[str] = [""]
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith(("#", "|", "<", "!!!", "???", "===", ":::", "![", "```", "[^")):
            found.append("")
        elif re.match(r"([-*+]|\d+\.|>|:) ", bare):
            found.append(re.sub(r"^([-*+]|\d+\.|>|:) +", "", bare))
        else:
            found[-1] += f" {bare}"
    return [each.strip() for each in found if each.strip()]


def _plain(paragraph: str) -> str:
    """Return the words that a reader sees; inline code and formulas become one word."""
    paragraph = re.sub(r"`[^`]*`", "code", paragraph)
    paragraph = re.sub(r"\$[^$]+\$", "formula", paragraph)
    paragraph = re.sub(r"!?\[([^\]]*)\]\([^)]*\)(\{[^}]*\})?", r"\1", paragraph)
    paragraph = re.sub(r"<[^>]+>", " ", paragraph)
    return _SHORT.sub(lambda match: match[0].replace(".", ""), paragraph).replace("et al.", "et al")


def sentences(text: str) -> list[str]:
    """Return the sentences of a Markdown page."""
    return [each.strip() for paragraph in _paragraphs(text) for each in _ENDS.split(_plain(paragraph)) if each.strip()]


def numbers(sentence: str) -> int:
    """Return how many numbers a sentence has. Years, and names such as CIFAR-10, are not numbers."""
    words = [word.strip("()[],.;:!?*_\"'“”") for word in sentence.split()]
    return sum(bool(re.match(r"[-+~±]?\d", word)) and not _YEAR.fullmatch(word) for word in words)


def faults(path: Path) -> list[str]:
    """Return what breaks the rules of style in a Markdown file."""
    text = path.read_text(encoding="utf-8")
    found = []
    for sentence in sentences(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MOST_WORDS:
            found.append(f"{len(words)} words: {sentence}")
        if numbers(sentence) > MOST_NUMBERS:
            found.append(f"{numbers(sentence)} numbers: {sentence}")
        if stiff := STIFF.search(sentence):
            found.append(f"'{stiff[0]}': {sentence}")
    # A sentence that is wrapped before "21. " becomes a list.
    found += [f"a list inside a paragraph: {line}" for line in re.findall(r"(?<=[a-z,])\n *(\d+\. [^\n]*)", text)]
    for block in re.findall(r"^ *```.*?^ *```", text, flags=re.DOTALL | re.MULTILINE):
        found += [f"{len(line)} characters: {line}" for line in block.splitlines() if len(line) > WIDEST_CODE]
    return found


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:]:
        for fault in faults(Path(name)):
            print(f"{name}: {fault}")
