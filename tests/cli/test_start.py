"""The first moments of the command: Ctrl-C while it is still being imported, and what importing the package brings."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import parsimon

# Ctrl-C at the moment when a module is about to be imported.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
STARTS = {
    "script": "from parsimon.cli import main; main()",
    "module": "runpy.run_module('parsimon', run_name='__main__')",
}
MODULES = ["numpy", "click", "rich.console", "PIL.Image", "parsimon.runs", "parsimon.cli.output", "parsimon.cli.view"]


def start(how: str, module: str, *arguments: str) -> Any:
    code = INTERRUPTED.replace("MODULE", repr(module)) + STARTS[how]
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("how", STARTS)
@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_during_the_imports_is_no_traceback(how: str, module: str) -> None:
    ran = start(how, module, "--help")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("how", STARTS)
def test_ctrl_c_during_the_imports_is_a_document_too(how: str) -> None:
    ran = start(how, "numpy", "zoo", "--json")
    assert ran.returncode == 130
    assert json.loads(ran.stdout) == {"error": "interrupted", "exit_code": 130}


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED.replace("MODULE", "'numpy'")
    ran = subprocess.run(
        [sys.executable, "-c", code + STARTS["script"], "--version"], capture_output=True, text=True, check=True
    )
    assert parsimon.__version__ in ran.stdout


def test_importing_the_package_or_the_command_imports_nothing_else_yet() -> None:
    code = "import sys; before = {*sys.modules}; import parsimon.cli; print(*sorted({*sys.modules} - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "click", "rich", "PIL", "parsimon.api"} & set(ran.stdout.split())


@pytest.mark.parametrize("module", ["parsimon.core.engine", "parsimon.attacks", "parsimon.defences"])
def test_attacks_and_defences_start_without_slow_imports(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"array_api_compat.numpy", "numpy.testing", "PIL", "torch", "click"} & set(ran.stdout.split())


def test_every_public_name_is_found_when_it_is_used() -> None:
    for name in parsimon.__all__:
        assert getattr(parsimon, name).__name__.removeprefix("parsimon.") == name
        assert name in dir(parsimon)
    assert set(parsimon.__all__) == {*parsimon._HOME_OF, "zoo"}
    assert parsimon.core.threat.Threat is parsimon.Threat
    assert not hasattr(parsimon, "nosuch")
    assert not hasattr(parsimon, "__main__")  # which would run the command
