"""Where a run was made: packages, machine, command; for readers of its results."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

_PACKAGES = (
    *("parsimon", "numpy", "array-api-compat", "onnxruntime", "torch", "tritonclient"),
    *("transformers", "timm", "robustbench"),
)


def environment() -> dict[str, Any]:
    """Describe this process and its machine."""
    return {
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "python": sys.version,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "commit": _commit(),
        "command": sys.argv,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the working folder, if it is a repository: usually the experiment's code."""
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()
