"""Kill a run and resume it: no stored query is repeated, and the result is the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from parsimon import runs
from parsimon.runs.config import RunConfig

spec = RunConfig(model="robust", attacks=("square",), images=16, budget=300, batch_size=16)
whole = runs.run(spec, Path("whole"))

Path("spec.toml").write_text(spec.toml())
command = [sys.executable, "-m", "parsimon", "run", "spec.toml", "--out", "cut-short"]
process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while not Path("cut-short/spec.toml").exists() and process.poll() is None:
    time.sleep(0.05)
if os.name == "posix":
    process.send_signal(signal.SIGKILL)
process.wait()

resumed = runs.resume(Path("cut-short"))
print(resumed)
assert resumed.results["Square"].outcomes == whole.results["Square"].outcomes
