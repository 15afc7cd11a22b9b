"""What does sampled utilisation say of an idle card, of the tensor path, of the fused path? Needs a GPU.

`python probes/sampled_utilisation.py OUT [flags of probe]`: a watch of the idle card, then one around a probe whose
sustained loops it is joined with, so that the device-busy share stands beside it. OUT/README.md is the table.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from kdaprof.runs.atomic import write_text
from kdaprof.runs.units import format_fraction

HZ, SECONDS = "20", "8"
KDAPROF = (sys.executable, "-m", "kdaprof")
FIGURES = (
    ("util_mean", "utilisation"),
    ("util_idle_share", "time ≤ 5 %"),
    ("gpm_sm", "SM activity"),
    ("gpm_tensor", "tensor activity"),
    ("gpm_dram", "DRAM activity"),
)


def watch(out: Path, *flags: str) -> dict[str, Any]:
    """One watch, anonymous, into `out`; its document. Where it fails the script ends with its code: it said why."""
    command = [*KDAPROF, "gpu-util", "--hz", HZ, "--anonymous", "--force", "--out", str(out), *flags]
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(code)
    document: dict[str, Any] = msgspec.json.decode((out / "gpu-util.json").read_bytes())
    return document


def row(name: str, facts: dict[str, Any], busy: float | None) -> str:
    """One line of the table; a missing figure is a dash."""
    values = [(facts.get(figure) or {}).get("value") for figure, _ in FIGURES]
    return " | ".join([f"| {name}", *("—" if v is None else format_fraction(v) for v in (*values, busy))]) + " |"


def main(out: Path, extra: list[str]) -> None:
    """Watch, join, write the table."""
    idle = watch(out / "idle", "--duration", SECONDS)
    probe = [
        "probe",
        "--paths",
        "tensor,fused",
        "--phases",
        "fwd",
        "--modes",
        "eager",
        "--rounds",
        "3",
        "--samples",
        "5",
    ]
    probe += ["--util-seconds", SECONDS, "--anonymous", "--force", "--out", str(out / "run"), *extra]
    paths = watch(out / "paths", "--steps", str(out / "run"), "--", *KDAPROF, *probe)
    busy = {"{1} {4}".format(*share["cell"].split("/")): share["share"]["value"] for share in paths["device_busy"]}
    lines = [
        "# Sampled utilisation beside the device-busy share",
        "",
        paths["meaning"],
        "",
        f"| what ran | {' | '.join(label for _, label in FIGURES)} | device busy / wall |",
        "|---|" + "--:|" * (len(FIGURES) + 1),
    ]
    lines += [row("nothing", card["facts"], None) for card in idle["gpus"]]
    for card in paths["gpus"]:
        lines += [row(joined["name"], joined["facts"], busy.get(joined["name"])) for joined in card["joined"]]
    lines += ["", f"Sampled at {HZ} Hz; each path in a loop of {SECONDS} s, one synchronise a call.", ""]
    lines.append("The watches: [idle](idle/report.md), [paths](paths/report.md); the run: [run](run/report.md).")
    write_text(out / "README.md", "\n".join([*lines, ""]))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python probes/sampled_utilisation.py OUT [flags of probe]")
    main(Path(sys.argv[1]), sys.argv[2:])
