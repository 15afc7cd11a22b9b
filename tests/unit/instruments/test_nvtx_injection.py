"""Ranges as a tool sees them: a collector of our own, compiled here and injected as Nsight injects its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

BEGIN = "from kdaprof.instruments.nvtx import in_range, open_ranges\nranges = open_ranges()\n"


@dataclass(frozen=True)
class Seen:
    """What the collector wrote: ranges in the order of their begin, ids in the order of their end."""

    domains: tuple[str, ...]
    categories: dict[str, str]
    started: tuple[tuple[str, ...], ...]
    ended: tuple[str, ...]
    pushed: int

    def named(self) -> list[tuple[str, str, str]]:
        """(name, category, payload) of each range."""
        return [(text, self.categories[category], payload) for _, _, category, text, payload, _ in self.started]


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
    subprocess.run(
        [
            "gcc",
            "-Wall",
            "-Werror",
            "-shared",
            "-fPIC",
            "-pthread",
            "-I",
            str(headers),
            "-o",
            str(library),
            str(source),
        ],
        check=True,
    )
    return library


def run(collector: Path, log: Path, work: str, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "NVTX_INJECTION64_PATH": str(collector), "NVTX_TEST_LOG": str(log), **environ}
    return subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(work)],
        env=variables,
        text=True,
        capture_output=True,
        check=False,
    )


def seen(collector: Path, log: Path, work: str, *, code: int = 0, **environ: str) -> Seen:
    done = run(collector, log, work, **environ)
    assert done.returncode == code, done.stderr
    events = [line.split("\t") for line in log.read_text().splitlines()] if log.exists() else []
    return Seen(
        domains=tuple(e[1] for e in events if e[0] == "domain"),
        categories={e[2]: e[3] for e in events if e[0] == "category" and e[1] == "kdaprof"},
        started=tuple(tuple(e[1:]) for e in events if e[0] == "start"),
        ended=tuple(e[1] for e in events if e[0] == "end" and e[2] == "kdaprof"),
        pushed=sum(e[0] == "push" for e in events),
    )


def test_every_range_has_our_domain_its_category_and_its_payload(collector: Path, tmp_path: Path) -> None:
    found = seen(
        collector,
        tmp_path / "log",
        """
        assert ranges.missing is None, ranges.missing
        with in_range(ranges, "20261202T015500Z-kda-fused", "run"):
            with in_range(ranges, "kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32", "cell", 7):
                for repeat in range(2):
                    with in_range(ranges, "fwd", "phase", repeat):
                        with in_range(ranges, "prepare", "stage", 0.5):
                            pass
                with in_range(ranges, "bwd", "phase", -(2**40)):
                    pass
        """,
    )
    assert found.domains.count("kdaprof") == 1
    assert sorted(found.categories.values()) == ["cell", "phase", "run", "stage"]
    assert found.named() == [
        ("20261202T015500Z-kda-fused", "run", "-"),
        ("kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32", "cell", "int64 7"),
        ("fwd", "phase", "int64 0"),
        ("prepare", "stage", "double 0.5"),
        ("fwd", "phase", "int64 1"),
        ("prepare", "stage", "double 0.5"),
        ("bwd", "phase", f"int64 {-(2**40)}"),
    ]
    assert {start[1] for start in found.started} == {"kdaprof"}
    assert len({start[5] for start in found.started}) == 4  # a colour a category
    assert found.ended == ("4", "3", "6", "5", "7", "2", "1")  # each once, inner before outer
    assert found.pushed == 0  # push and pop belong to a thread: what autograd's own launches would fall out


def test_every_range_is_ended_after_an_exception(collector: Path, tmp_path: Path) -> None:
    found = seen(
        collector,
        tmp_path / "log",
        """
        try:
            with in_range(ranges, "outer", "cell"), in_range(ranges, "inner", "stage", 3):
                raise ValueError("the workload failed")
        except ValueError:
            pass
        with in_range(ranges, "after", "phase"):
            pass
        with in_range(ranges, "last", "cell"):
            raise SystemExit(7)
        """,
        code=7,
    )
    assert [name for name, _, _ in found.named()] == ["outer", "inner", "after", "last"]
    assert found.ended == ("2", "1", "3", "4")


def test_a_range_is_the_process_s_begun_here_and_ended_by_another_thread(collector: Path, tmp_path: Path) -> None:
    found = seen(
        collector,
        tmp_path / "log",
        """
        import threading
        token = ranges.start("bwd", "phase", 2)
        ranges.start("left open", "stage")
        thread = threading.Thread(target=ranges.end, args=(token,))
        thread.start()
        thread.join()
        """,
    )
    assert found.named() == [("bwd", "phase", "int64 2"), ("left open", "stage", "-")]
    assert found.ended == ("1",)


def test_the_stages_of_the_op_are_ranges(collector: Path, tmp_path: Path) -> None:
    """The ranges that a profiled repeat makes around the tensor path, as the probe makes them."""
    pytest.importorskip("torch")
    found = seen(
        collector,
        tmp_path / "log",
        """
        import torch
        from kdaprof.kda import kda
        from kdaprof.kda.stages import watched
        q, k, v, g = (torch.rand(1, 32, 1, 16) for _ in range(4))
        with in_range(ranges, "fwd", "phase"), watched(lambda name: in_range(ranges, name, "stage")):
            kda(q, k, v, -g, torch.rand(1, 32, 1), path="tensor")
        """,
    )
    names = [(name, category) for name, category, _ in found.named()]
    assert names[0] == ("fwd", "phase")
    assert len(names) > 3
    assert {category for _, category in names[1:]} == {"stage"}
    assert sorted(found.ended, key=int) == [str(i + 1) for i in range(len(names))]
    assert found.ended[-1] == "1"


def test_switched_off_nothing_reaches_a_tool(collector: Path, tmp_path: Path) -> None:
    work = "assert 'KDAPROF_NVTX=0' in ranges.missing\nwith in_range(ranges, 'x', 'run', 1): pass\n"
    found = seen(collector, tmp_path / "log", work, KDAPROF_NVTX="0")
    assert found == Seen((), {}, (), (), 0)


def test_a_wrong_path_of_an_injected_library_is_noticed(tmp_path: Path) -> None:
    """NVTX ignores it without a word; our ranges say that nobody listens."""
    work = "assert 'no tool is attached' in ranges.missing, ranges.missing"
    done = run(tmp_path / "absent.so", tmp_path / "log", work)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "log").exists()
