"""Measure the size of the report of three attacks on 500 images, and how long Chromium takes to open it.

python benchmarks/page.py    (needs Chromium; on Debian: apt-get install chromium)
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from parsimon.report.page import write_page
from sample_report import chromium, made


def main() -> None:
    path = Path(tempfile.mkdtemp()) / "report.html"
    comparison = made(500)
    began = time.perf_counter()
    write_page({"made": comparison}, path)
    print(f"written in {time.perf_counter() - began:.1f} s: {path.stat().st_size / 1e6:.2f} MB")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for _ in range(3):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(path.as_uri())
            page.locator(".card img").last.evaluate("image => image.decode()")
            opened = time.perf_counter() - began
            began = time.perf_counter()
            page.locator("select[name=sort]").select_option("number")
            page.locator(".card img").last.evaluate("image => image.decode()")
            print(f"opened in {opened:.2f} s, sorted in {time.perf_counter() - began:.2f} s")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
