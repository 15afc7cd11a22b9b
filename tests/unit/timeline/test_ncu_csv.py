"""The CSV of Nsight Compute in both of its forms, in other units and locales, and with what else such files hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdaprof.errors import BadFileError, Exit
from kdaprof.timeline.ncu_csv import (
    METRICS,
    CountersRefusedError,
    NcuKernel,
    NoKernelsError,
    NvtxRange,
    parse,
    read,
)

START_STOP = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
PUSH_POP = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
UNITS = ("nsecond", "byte", "byte", "%", "%", "%", "%", "register/thread", "byte", "byte")
VALUES = ("70,112", "51,904,512", "70,254,592", "38.12", "22.50", "41.07", "50", "168", "0", "2,048")


def quoted(*cells: str) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


def wide(*, values: tuple[str, ...] = VALUES, units: tuple[str, ...] = UNITS, ranges: str = "") -> str:
    """As `ncu --csv --page raw --nvtx` writes it into its log file."""
    fixed = ("ID", "Process ID", "Process Name", "Host Name", PUSH_POP, START_STOP, "Kernel Name", "Context", "Stream")
    return "\n".join(
        [
            "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
            '==PROF== Profiling "kdaprof_kda_fwd_prepare" - 0: 0%....50%....100% - 4 passes',
            "==PROF== Disconnected from process 4711",
            quoted(*fixed, *METRICS, "Grid Size", "Block Size", "Device", "CC"),
            quoted(*([""] * len(fixed)), *units, "", "", "", ""),
            quoted(
                "0", "4711", "python3.12", "127.0.0.1", "", ranges, "kdaprof_kda_fwd_prepare", "1", "7", *values,
                "(3840, 1, 1)", "(64, 1, 1)", "0", "9.0",
            ),
        ]
    )  # fmt: skip


def one(text: str) -> NcuKernel:
    (kernel,) = parse(text, "x.csv").kernels
    return kernel


def test_the_raw_page_has_a_launch_a_row() -> None:
    kernel = one(wide(ranges='"1:kdaprof:fwd:none:none:ARGB:0xff008000:registered:fwd"'))
    assert (kernel.name, kernel.process, kernel.capability) == ("kdaprof_kda_fwd_prepare", "4711", "9.0")
    assert (kernel.grid, kernel.block, kernel.stream) == ("(3840, 1, 1)", "(64, 1, 1)", "7")
    assert kernel.ranges == (NvtxRange("1", "kdaprof", "fwd"),)
    assert (kernel.duration_ns, kernel.dram_read_bytes, kernel.dram_write_bytes) == (70_112, 51_904_512, 70_254_592)
    assert kernel.dram_share == pytest.approx(0.3812)
    assert kernel.sm_share == pytest.approx(0.225)
    assert kernel.occupancy == pytest.approx(0.4107)
    assert kernel.occupancy_limit == pytest.approx(0.5)
    assert (kernel.registers, kernel.local_load_bytes, kernel.local_store_bytes) == (168, 0, 2048)
    assert kernel.missing == ()


def test_scaled_and_short_units_are_base_units_here() -> None:
    units = ("us", "Mbyte", "Kbyte", "%", "%", "%", "%", "register/thread", "KB", "GB")
    kernel = one(wide(units=units, values=("70.112", "51.9", "640", *VALUES[3:8], "2", "1.5")))
    assert kernel.duration_ns == pytest.approx(70_112)
    assert kernel.dram_read_bytes == pytest.approx(51.9e6)
    assert kernel.dram_write_bytes == 640_000
    assert (kernel.local_load_bytes, kernel.local_store_bytes) == (2_000, 1.5e9)


def test_an_unknown_unit_is_missing_and_never_guessed() -> None:
    kernel = one(wide(units=("fortnight", *UNITS[1:]), values=(*VALUES[:7], "n/a", *VALUES[8:])))
    assert kernel.duration_ns is None
    assert kernel.registers is None
    reasons = dict(kernel.missing)
    assert reasons["duration_ns"] == "unit 'fortnight' of gpu__time_duration.sum is unknown"
    assert reasons["registers"] == "launch__registers_per_thread is 'n/a'"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,048,576", 1_048_576),
        ("1.048.576", 1_048_576),
        ("1'048'576", 1_048_576),
        ("1\u202f048\u202f576", 1_048_576),
        ("1,048.5", 1048.5),
        ("1.048,5", 1048.5),
        ("0,5", 0.5),
        ("0.5", 0.5),
        ("1234567", 1_234_567),
        ("1.5e+06", 1.5e6),
        ("0", 0),
    ],
)
def test_numbers_of_other_locales(text: str, value: float) -> None:
    assert one(wide(values=(text, *VALUES[1:]))).duration_ns == value


@pytest.mark.parametrize("text", ["", "nan", "inf", "1,04,8", "12 apples", "--1", "1e999"])
def test_what_is_no_number_is_missing(text: str) -> None:
    assert one(wide(values=(text, *VALUES[1:]))).duration_ns is None


def test_the_details_page_has_a_metric_a_row() -> None:
    head = (
        "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
        "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name",
    )  # fmt: skip

    def row(index: int, name: str, section: str, metric: str, unit: str, value: str) -> str:
        start = (str(index), "31", "python3", "127.0.0.1", name, "1", "7", "(128, 1, 1)", "(120, 1, 1)", "0", "9.0")
        return quoted(*start, section, metric, unit, value, "")

    text = "\n".join(
        [
            "step 12: loss 3.1",  # the command's own words, where stdout was kept
            quoted(*head),
            row(0, "recur", "GPU Speed Of Light Throughput", "Duration", "us", "58.27"),
            row(0, "recur", "GPU Speed Of Light Throughput", "DRAM Throughput", "%", "41.5"),
            "step 13: loss 3.0",
            row(0, "recur", "Occupancy", "Achieved Occupancy", "%", "5.75"),
            row(0, "recur", "Occupancy", "", "", ""),
            row(1, "pairs", "Launch Statistics", "Registers Per Thread", "register/thread", "255"),
            row(1, "pairs", "Command line profiler metrics", "dram__bytes_read.sum", "byte", "2,816"),
        ]
    )
    recur, pairs = parse(text, "x.csv").kernels
    assert (recur.name, recur.duration_ns, recur.dram_share) == ("recur", pytest.approx(58_270), pytest.approx(0.415))
    assert recur.dram_read_bytes is None
    assert dict(recur.missing)["dram_read_bytes"] == "the file has no dram__bytes_read.sum"
    assert (pairs.registers, pairs.dram_read_bytes, pairs.duration_ns) == (255, 2816, None)


def test_launches_of_two_processes_share_indices_and_a_repeated_header_is_skipped() -> None:
    lines = wide().splitlines()
    again = [lines[3], lines[4], lines[5].replace('"4711"', '"4712"')]
    kernels = parse("\n".join([*lines, *again]), "x.csv").kernels
    assert [(k.index, k.process) for k in kernels] == [(0, "4711"), (0, "4712")]


@pytest.mark.parametrize(
    ("cell", "ranges"),
    [
        ("", []),
        ('"3:kdaprof:bwd:int64:-4:ARGB:0xff008000:registered:bwd"', [("3", "kdaprof", "bwd")]),
        (
            '"1:kdaprof:a: b:none:none:none:none:none:none" "2:<default domain>:step:none:none:none:none:none:none"',
            [("1", "kdaprof", "a: b"), ("2", "<default domain>", "step")],
        ),
        (
            "7:kdaprof:kda/fused/plain/eager/fwd/B1-T40-H2-K32-V32-C16/float32:int64:0:ARGB:0xff0000ff:registered:x",
            [("7", "kdaprof", "kda/fused/plain/eager/fwd/B1-T40-H2-K32-V32-C16/float32")],
        ),
    ],
)
def test_ranges_of_a_launch(cell: str, ranges: list[tuple[str, str, str]]) -> None:
    assert [(r.id, r.domain, r.name) for r in one(wide(ranges=cell)).ranges] == ranges


def test_refused_counters_are_one_line_with_the_way_out() -> None:
    text = (
        "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
        "NVIDIA GPU Performance Counters on the target device 0. For instructions …\n"
    )
    with pytest.raises(
        CountersRefusedError, match=r"--cap-add=SYS_ADMIN.*NVreg_RestrictProfilingToAdminUsers=0"
    ) as caught:
        parse(text, "x.csv")
    assert caught.value.exit_code == Exit.UNFIT
    assert "\n" not in str(caught.value)


def test_no_launch_is_an_error_with_what_the_tool_said(tmp_path: Path) -> None:
    with pytest.raises(NoKernelsError, match=r"The application returned an error code \(1\); did a range"):
        parse("==ERROR== The application returned an error code (1).\n==WARNING== No kernels were profiled.\n", "x.csv")
    with pytest.raises(NoKernelsError, match="a header and no launch"):
        parse("\n".join(wide().splitlines()[:5]), "x.csv")


@pytest.mark.parametrize(
    "text",
    [
        *("", "a,b\n1,2\n", '{"schema": "kdaprof.run/1"}', "\x00\x01\x02", '"ID","Name"\n"1","x"'),
        '"ID","Kernel Name"x\n"0","a"\n',  # names a column that it does not have
        f'"ID","Kernel Name{"e" * 200_000}"\n',
    ],
)
def test_what_is_no_such_csv_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.csv"
    file.write_text(text)
    with pytest.raises(BadFileError, match=r"x\.csv: no CSV of Nsight Compute"):
        read(file)
    with pytest.raises(BadFileError, match="cannot read"):
        read(tmp_path / "absent.csv")


def test_a_line_that_lost_its_end_is_counted_and_never_a_fault_of_ours() -> None:
    lines = wide().splitlines()
    endless = f'"1","{"k" * 200_000}"'
    found = parse("\n".join([*lines, endless]), "x.csv")
    assert (len(found.kernels), found.cut) == (1, 1)
    with pytest.raises(BadFileError, match=r"x\.csv: damaged: none of the 1 lines"):
        parse("\n".join([*lines[:-1], endless]), "x.csv")


def test_a_file_cut_anywhere_gives_whole_launches_or_one_error() -> None:
    """Never another exception, and never half a number."""
    lines = wide(ranges='"1:kdaprof:fwd:none:none:ARGB:0xff008000:registered:fwd"').splitlines()
    text = "\n".join([*lines, lines[-1].replace('"0"', '"1"', 1)])
    whole = parse(text, "x.csv").kernels
    assert len(whole) == 2
    seen = set()
    for end in range(len(text)):
        try:
            found = parse(text[:end], "x.csv")
        except BadFileError:
            continue
        assert found.kernels == whole[: len(found.kernels)]
        seen.add((len(found.kernels), found.cut))
    assert seen == {(1, 0), (1, 1)}


def test_warnings_of_the_tool_are_kept_once() -> None:
    text = "==WARNING== Backing up device memory in system memory.\n" * 2 + wide()
    assert parse(text, "x.csv").notes == ("Backing up device memory in system memory.",)
