"""Set search can be lifted out: it needs numpy and `parsimon.errors`, and so do its tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "onnxruntime", "onnx", "playwright", "scipy", "PIL", "array_api_compat", "matplotlib")


@pytest.mark.parametrize("module", ["parsimon.setsearch", "parsimon.setsearch.theory", "set_problems"])
def test_it_is_imported_where_nothing_but_numpy_is_installed(module: str) -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}; sys.modules.update(dict.fromkeys({HEAVY!r})); import {module}; "
    code += "print(*[name for name in sys.modules if name.startswith('parsimon.')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    names = ("errors", "version", "setsearch", "setsearch.search", "setsearch.theory")
    assert set(ran.stdout.split()) <= {f"parsimon.{name}" for name in names}
