"""The command `parsimon`: a module for each of its parts.

Importing this package imports none of them: `main` does, when it is ready for Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys

_INTERRUPTED = 130  # as shells report Ctrl-C


def main() -> None:
    """Run the command as a process."""
    # Threads that spin while they wait slow a torch model down a hundredfold beside any other busy process; torch
    # reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a job in the background is not
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    from parsimon.cli import output
    from parsimon.cli.commands import command

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(output.run(command))


def _leave(*_: object) -> None:
    """Leave at once: an exception might be raised where Python ignores it, and nothing is in work yet."""
    if "--json" in sys.argv:
        os.write(1, b'{"error": "interrupted", "exit_code": %d}\n' % _INTERRUPTED)
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)
