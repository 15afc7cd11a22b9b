"""Ranges as a tool sees them: the real package with an injected collector, and the ways to have none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.fakes import FakeClock, FakeRanges
from kdaprof.instruments.nvtx import NoRanges, NvtxRanges, in_range, open_ranges, range_cost_ns

WORK = textwrap.dedent(
    """
    import threading
    from kdaprof.instruments.nvtx import in_range, open_ranges

    ranges = open_ranges()
    assert ranges.missing is None, ranges.missing
    run = ranges.start("run-1", "run")
    with in_range(ranges, "kda/fused", "cell"):
        for repeat in range(2):
            with in_range(ranges, "fwd", "phase", repeat):
                pass
        with in_range(ranges, "prepare", "stage", 0.5):
            pass
    # A range that another thread ends: what push and pop cannot do.
    thread = threading.Thread(target=ranges.end, args=(run,))
    thread.start()
    thread.join()
    """
)


def includes() -> Path | None:
    """A folder that holds nvtx3/nvToolsExt.h: the package nvidia-nvtx, or a CUDA toolkit."""
    found = importlib.util.find_spec("nvidia")
    packages = [Path(p) / "nvtx/include" for p in (found.submodule_search_locations or [])] if found else []
    toolkits = sorted(Path("/usr/local").glob("cuda*/include"))
    places = [p for p in (*packages, *toolkits) if (p / "nvtx3/nvToolsExt.h").exists()]
    return places[0] if places else None


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    headers = includes()
    if headers is None or shutil.which("gcc") is None:
        pytest.skip("needs gcc and the NVTX headers (package nvidia-nvtx, or a CUDA toolkit)")
    library = tmp_path_factory.mktemp("nvtx") / "collector.so"
    source = Path(__file__).with_name("nvtx_injection.c")
    command = ["gcc", "-shared", "-fPIC", "-I", str(headers), "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library


def collected(collector: Path, log: Path, **environ: str) -> list[list[str]]:
    variables = {
        **os.environ,
        "NVTX_INJECTION64_PATH": str(collector),
        "NVTX_TEST_LOG": str(log),
        **environ,
    }
    subprocess.run([sys.executable, "-c", WORK], env=variables, check=True)
    return [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []


def test_a_tool_sees_domain_categories_payloads_and_process_wide_ranges(collector: Path, tmp_path: Path) -> None:
    events = collected(collector, tmp_path / "log")
    domains = {e[1] for e in events if e[0] == "domain"}
    assert "kdaprof" in domains
    categories = {e[2]: e[3] for e in events if e[0] == "category" and e[1] == "kdaprof"}
    assert set(categories.values()) == {"run", "cell", "phase", "stage"}
    starts = [e for e in events if e[0] == "start"]
    assert [(e[4], categories[e[3]], e[5]) for e in starts] == [
        ("run-1", "run", "-"),
        ("kda/fused", "cell", "-"),
        ("fwd", "phase", "0"),
        ("fwd", "phase", "1"),
        ("prepare", "stage", "0.5"),
    ]
    assert all(e[2] == "kdaprof" for e in starts)
    # Every range was ended once, the outermost one last.
    assert [e[1] for e in events if e[0] == "end"] == ["3", "4", "5", "2", "1"]


def test_without_a_tool_the_real_package_says_that_nobody_listens() -> None:
    ranges = open_ranges({})
    assert isinstance(ranges, NvtxRanges)
    if os.environ.get("NVTX_INJECTION64_PATH") is None:
        assert "no tool" in (ranges.missing or "")
    with in_range(ranges, "x", "phase", 3):
        pass
    assert 0 < range_cost_ns(ranges, MonotonicClock(), 100) < 100_000


def test_switched_off() -> None:
    ranges = open_ranges({"KDAPROF_NVTX": "0"})
    assert isinstance(ranges, NoRanges)
    assert "KDAPROF_NVTX=0" in (ranges.missing or "")
    ranges.end(ranges.start("x", "run"))


def test_package_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert "pip install" in (open_ranges({}).missing or "")


def test_a_range_is_ended_when_its_block_raises() -> None:
    ranges = FakeRanges()
    with pytest.raises(ZeroDivisionError), in_range(ranges, "x", "stage"):
        _ = 1 / 0
    assert ranges.started == [("x", "stage", None)]
    assert ranges.open == set()


def test_cost_is_the_mean_over_many() -> None:
    clock = FakeClock()

    class Slow(FakeRanges):
        def start(self, name: str, category: str, payload: int | float | None = None) -> int:
            clock.advance(400)
            return super().start(name, category, payload)

    assert range_cost_ns(Slow(), clock, 10) == 400
