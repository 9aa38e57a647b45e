"""The type of what a page shows, before it becomes JSON."""

from typing import Any

Data = dict[str, Any]
