"""What installing and importing the package brings along, and what it does not."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import parsimon

FRAMEWORKS = {"torch", "onnxruntime", "onnx", "matplotlib", "ray", "tensorflow", "jax", "foolbox", "pandas"}


def project() -> dict[str, Any]:
    described: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    return described


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in requirements}


def imported_by(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has in memory after a statement."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_no_framework() -> None:
    loaded = imported_by("from parsimon import *")
    assert "numpy" in loaded  # or else nothing was seen
    assert not loaded & FRAMEWORKS


def test_importing_the_command_imports_no_framework() -> None:
    assert not imported_by("import parsimon.cli.commands") & FRAMEWORKS


def test_a_plain_function_is_attacked_without_any_framework() -> None:
    code = (
        "import numpy as np, parsimon; x = np.random.default_rng(0).random((4, 3, 8, 8), dtype=np.float32); "
        "f = lambda x: np.stack([x.mean((1, 2, 3)), 0.9 - x.mean((1, 2, 3))], 1); "
        "parsimon.attack(f, x, f(x).argmax(1), 0.1, budget=9)"
    )
    assert not imported_by(code) & FRAMEWORKS


def test_no_framework_is_a_dependency_of_the_core() -> None:
    required = names(project()["dependencies"])
    assert "numpy" in required
    assert not required & FRAMEWORKS


def test_each_framework_is_brought_by_the_extra_that_error_messages_name() -> None:
    extras = project()["optional-dependencies"]
    assert "onnxruntime" in names(extras["onnx"])
    assert {"torch", "onnx"} <= names(extras["torch"])


def test_there_is_one_version() -> None:
    assert parsimon.__version__ == project()["version"]


def test_every_public_name_exists_once() -> None:
    assert len(set(parsimon.__all__)) == len(parsimon.__all__)
    for name in parsimon.__all__:
        assert getattr(parsimon, name) is not None


def test_the_public_names_are_all_that_a_star_import_brings() -> None:
    code = "from parsimon import *; print(*sorted(name for name in dir() if not name.startswith('__')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == sorted(parsimon.__all__)


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(parsimon.__file__).parent / "py.typed").is_file()
