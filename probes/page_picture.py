"""A picture of a run's HTML page, from its table of figures on: `python probes/page_picture.py RUN OUT.png`.

Needs the package playwright and a Chromium (chromium or google-chrome on the PATH).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1360, 1420


def main(run: Path, out: Path) -> None:
    """Make the page, open it, and keep what the window shows below the heading of the figures."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("page_picture: no chromium or google-chrome on the PATH: install one (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "page.html"
        command = [sys.executable, "-m", "kdaprof", "report", str(run), "--html", "--out", str(page_file)]
        code = subprocess.run(command, check=False).returncode
        if code:
            sys.exit(code)  # the report said why
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file.as_uri())
        page.wait_for_selector("#figures")
        page.evaluate("document.querySelector('#figures').scrollIntoView()")
        page.wait_for_timeout(1500)  # the charts in view are drawn when they come into it
        page.screenshot(path=str(out))
        chromium.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python probes/page_picture.py RUN OUT.png")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
