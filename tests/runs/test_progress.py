"""The live line of a run, on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path


def test_a_terminal_shows_images_success_queries_and_speed(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "parsimon", "run", "--images", "5", "--budget", "40", "--out", "out"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(command, cwd=tmp_path, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search(r"Parsimonious ━+ 5/5 \d+\.\d% fooled, [\d,]+ queries, [\d,]+/s 0:\d\d:\d\d", text)
