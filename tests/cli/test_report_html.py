"""`kdaprof report --html` and `--tables`, and the page itself in a headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_report_verb import one_run, store

from kdaprof.cli.main import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

STORED = Path(__file__).resolve().parents[2] / "reports" / "h200-kda"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


# A process that has none of these: analysis and reports need no torch.
WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton", "pynvml"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from kdaprof.cli.main import main
run, page = sys.argv[1:]
assert main(["report", run, "--html", "--out", page]) == 0
sys.exit(main(["report", run, "--tables", "field"]))
"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The page, and what was printed: where it is, then the field tables."""
    path = tmp_path_factory.mktemp("page") / "kda.html"
    command = [sys.executable, "-c", WITHOUT_TORCH, str(STORED), str(path)]
    return path, subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def written(reported: tuple[Path, str]) -> Path:
    return reported[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here; .ci/run installs it with apt")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def until(page: Page, condition: str, seconds: float = 30.0) -> None:
    """Wait for it from outside: playwright's own wait evaluates text inside the page, which its policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


class Watched:
    """A page with everything that it said and asked for."""

    def __init__(self, browser: Browser, path: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(accept_downloads=True, viewport={"width": 1300, "height": 900}, **context)
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        until(self.page, "document.documentElement.dataset.ready === 'true'")


@pytest.fixture(scope="module")
def shown(browser: Browser, written: Path) -> Iterator[Watched]:
    watched = Watched(browser, written, color_scheme="light")
    yield watched
    watched.context.close()


def test_no_error_and_no_request(shown: Watched, written: Path) -> None:
    assert shown.said == []
    assert [url for url in shown.asked if not url.startswith(("data:", "blob:"))] == [written.as_uri()]


def test_every_plot_is_drawn(shown: Watched) -> None:
    plots = shown.page.locator(".plot")
    assert plots.count() >= 7
    for index in range(plots.count()):
        assert plots.nth(index).locator("svg.main-svg").count() >= 1
        assert plots.nth(index).locator(".trace, .bars .point, .points path").count() >= 1


def test_the_toggle_changes_page_and_plots(shown: Watched) -> None:
    page = shown.page
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('ladder-chart').layout.font.color"
    light = page.evaluate(background), page.evaluate(ink)
    page.locator("#theme").click()
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    dark = page.evaluate(background), page.evaluate(ink)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.locator("#theme").click()
    assert (page.evaluate(background), page.evaluate(ink)) == light


def test_dark_is_the_systems_choice(browser: Browser, written: Path) -> None:
    watched = Watched(browser, written, color_scheme="dark")
    assert watched.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    assert watched.said == []
    watched.context.close()


def test_a_table_downloads_as_csv(shown: Watched) -> None:
    with shown.page.expect_download() as waiting:
        shown.page.locator("[data-csv='main-table']").click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8-sig")
    lines = text.splitlines()
    assert waiting.value.suggested_filename == "main-table.csv"
    assert lines[0].startswith("path,phase,wall_ns,host_ns,gpu_busy_ns,host_bound,launches,graph_wall_ns,floor_ns")
    assert lines[0].endswith("refused_by,missing_because")
    assert len(lines) == 1 + shown.page.locator("#main-table tbody tr").count()
    assert float(lines[1].split(",")[2]) > 1000


def test_a_table_copies_as_text(shown: Watched) -> None:
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.page.locator("[data-copy='main-table']").click()
    until(shown.page, "document.getElementById('said').textContent === 'Copied as text'")
    text = shown.page.evaluate("navigator.clipboard.readText()")
    assert text.splitlines()[0].split()[:2] == ["path", "phase"]
    assert len(text.splitlines()) == 1 + shown.page.locator("#main-table tbody tr").count()


def test_the_keyboard_walks_the_figures_and_opens_a_record(shown: Watched) -> None:
    page = shown.page
    figures = page.locator("#main-table .fig")
    figures.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.fact").endswith("/host_ns")
    page.keyboard.press("Enter")
    assert page.locator("#record").is_visible()
    assert "origin" in page.locator("#record").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#record").is_visible()


def test_the_timeline_zooms_and_changes_its_call(shown: Watched) -> None:
    page = shown.page
    width = "(([a, b]) => b - a)(document.getElementById('timeline-chart').layout.xaxis.range)"
    whole = page.evaluate(width)
    page.locator("[data-zoom='in']").click()
    assert page.evaluate(width) == pytest.approx(whole / 2)
    page.locator("[data-zoom='all']").click()
    assert page.evaluate(width) == pytest.approx(whole)
    names = page.locator("#timeline-chart-which option").all_inner_texts()
    page.locator("#timeline-chart-which").select_option(names[-1])
    until(page, f"Math.abs({width} - {whole}) > 1e-9")
    assert shown.said == []


def test_it_fits_a_narrow_window(browser: Browser, written: Path) -> None:
    watched = Watched(browser, written)
    watched.page.set_viewport_size({"width": 800, "height": 900})
    until(watched.page, "document.documentElement.scrollWidth <= 800")
    watched.context.close()


def test_the_page_goes_into_the_run_and_over_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = store(tmp_path / "run", one_run())
    assert main(["report", str(run), "--html"]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert main(["report", str(run), "--html"]) == 0
    notes = tmp_path / "notes.html"
    notes.write_text("<p>mine</p>")
    capsys.readouterr()
    assert main(["report", str(run), "--html", "--out", str(notes)]) == 2
    assert "exists and is no page of kdaprof" in capsys.readouterr().err
    assert notes.read_text() == "<p>mine</p>"
    assert main(["report", str(run), "--html", "--out", "/dev/zero"]) == 2  # is not read to its end


def test_open_shows_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    run = store(tmp_path / "run", one_run())
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)))
    path = tmp_path / "kda.html"
    assert main(["report", str(run), "--html", "--out", str(path), "--open"]) == 0
    assert opened == [path.as_uri()]
    assert "no browser here" in capsys.readouterr().err


def test_field_tables_on_stdout(reported: tuple[Path, str]) -> None:
    path, printed = reported
    first, out = printed.split("\n", 1)
    assert first == str(path)
    assert out.startswith("# Field report: kda: ")
    assert "| fused against tensor " in out
