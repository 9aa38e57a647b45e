"""The command `parsimon`, with one module per group of subcommands.

Only `main` imports them, once it is ready for Ctrl-C. This package may import every other one.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

_INTERRUPTED = 130  # as shells report Ctrl-C


def main() -> None:
    """Run the command as a process."""
    # Spinning threads slow a torch model down a hundredfold beside another busy process; torch reads this on import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # false for background jobs
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    from parsimon.cli import output, streams
    from parsimon.cli.commands import command
    from parsimon.core.engine import SWITCH_SECONDS
    from parsimon.models import keep_freed_memory

    streams.prepare(json="--json" in sys.argv)
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    if (here := str(Path.cwd())) not in sys.path:  # `--model module:function` may name a script beside the user
        sys.path.insert(0, here)
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(output.run(command))


def _leave(*_: object) -> None:
    """Exit at once: no work has started yet, and Python might swallow an exception during an import."""
    if "--json" in sys.argv:
        os.write(1, b'{"error": "interrupted", "exit_code": %d}\n' % _INTERRUPTED)
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)
