"""Defences as wrappers around any model: one file per defence; `registry` parses their names.

A new defence needs its file and a line in `DEFENCES`. Imports core only.
"""

from parsimon.defences.aaa import AAA
from parsimon.defences.base import Defence
from parsimon.defences.bit_depth import BitDepth
from parsimon.defences.blacklight import Blacklight
from parsimon.defences.input_noise import InputNoise
from parsimon.defences.jpeg import Jpeg
from parsimon.defences.registry import DEFENCES, defended, parse_defence
from parsimon.defences.resize_pad import ResizePad
from parsimon.defences.rounded_scores import RoundedScores

__all__ = [
    "AAA",
    "DEFENCES",
    "BitDepth",
    "Blacklight",
    "Defence",
    "InputNoise",
    "Jpeg",
    "ResizePad",
    "RoundedScores",
    "defended",
    "parse_defence",
]
