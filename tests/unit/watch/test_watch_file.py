"""The spool and the reader: parts, a kill, a full disk, damage, CSV."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow.csv
import pytest
from watch_parts import S, row

from kdaprof.errors import BadFileError
from kdaprof.instruments.watch.spool import Spool
from kdaprof.runs.util import LATENESS, read_util
from kdaprof.runs.util_csv import write_csv
from kdaprof.runs.util_file import UtilFile, parts_folder


def filled(path: Path, seconds: int, **options: int) -> Spool:
    spool = Spool(path, **options)
    for k in range(seconds):
        spool.tick(k * S, 5)
        spool.add([row(k * S, "util", k / 100), row(k * S, "power_w", None)])
    return spool


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "gpu_util.parquet"
    filled(path, 10, batch_rows=4, part_ns=3 * S).close()
    file = UtilFile(path)
    assert file.fields() == (LATENESS, "power_w", "util")
    util = file.series("util")["GPU-0"]
    assert util.value.tolist() == [k / 100 for k in range(10)]
    power = file.series("power_w")["GPU-0"]
    assert all(map(math.isnan, power.value))
    assert (power.reasons, power.reason) == ({"not here": 10}, "not here")
    assert file.series(LATENESS)[None].value.tolist() == [5.0] * 10
    # The same file is what every other reader of runs takes.
    assert len(read_util(path)) == 30
    assert not parts_folder(path).exists()


def test_a_killed_watch_is_read_from_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "gpu_util.parquet"
    script = f"""
        import os, time
        from pathlib import Path
        from test_watch_file import S, filled
        from kdaprof.runs.util_file import parts_of
        path = Path({str(path)!r})
        spool = filled(path, 200, batch_rows=8, part_ns=20 * S)
        while len(parts_of(path)) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=Path(__file__).parent, check=False)
    assert done.returncode == -9
    assert not path.exists()
    found = UtilFile(path).series("util")["GPU-0"]
    assert found.t_ns.size >= 60
    assert found.value.tolist() == [k / 100 for k in range(found.t_ns.size)]


def test_a_disk_that_fills_up_ends_in_one_error_and_keeps_what_was_whole(tmp_path: Path) -> None:
    script = f"""
        import random, resource
        from pathlib import Path
        from test_watch_file import S, row
        from kdaprof.instruments.watch.spool import Spool
        from kdaprof.runs.atomic import TargetError
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        spool = Spool(Path({str(tmp_path / "gpu_util.parquet")!r}), batch_rows=500, part_ns=10**18)
        try:
            for k in range(10_000_000):
                spool.tick(k * S, 5)
                spool.add([row(k * S, "util", random.random())])
        except TargetError as error:
            print("while sampling:", error)
        try:
            spool.close()
        except TargetError as error:
            print("at the end:", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=Path(__file__).parent,
        check=True,
        capture_output=True,
        text=True,
    )
    first, last = done.stdout.splitlines()
    assert first.startswith("while sampling:")
    assert last.startswith("at the end:")
    assert "gpu_util.parquet: cannot write (File too large)" in first
    assert not (tmp_path / "gpu_util.parquet").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all"])
def test_damage_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "gpu_util.parquet"
    path.write_bytes(content)
    with pytest.raises(BadFileError, match=r"gpu_util\.parquet"):
        UtilFile(path).fields()


def test_nothing_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="kdaprof gpu-util"):
        UtilFile(tmp_path / "gpu_util.parquet")


def test_the_csv_holds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "gpu_util.parquet"
    filled(path, 10).close()
    write_csv(UtilFile(path), tmp_path / "x.csv")
    table = pyarrow.csv.read_csv(tmp_path / "x.csv")
    assert table.column_names == ["t_ns", "uuid", "field", "value", "stale", "missing"]
    assert table.num_rows == 30
