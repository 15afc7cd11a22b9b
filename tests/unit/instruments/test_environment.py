from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from kdaprof.instruments.environment import collect, relevant_variables, secrets
from kdaprof.instruments.fakes import FAKE_TRAITS, FakeCard, FakePynvml
from kdaprof.instruments.nvml import open_nvml
from kdaprof.instruments.reading import Reading, missing
from kdaprof.runs.conditions import ForeignProcess, MissingField
from kdaprof.runs.environment import (
    FREE_TEXT,
    Environment,
    Secrets,
    Variable,
    anonymised,
    anonymised_argv,
    scrub,
    scrub_text,
)
from kdaprof.runs.record import CellError, RunRecord
from kdaprof.runs.watch import WatchRecord

WHO = Secrets(cwd="/srv/jobs/exp-1", home="/home/mallory", hostname="gpu-box-7", user="mallory")
NO_NVML: Reading[object] = missing("library-absent", "no NVML here")


def gathered(**changes: object) -> Environment:
    options: dict[str, object] = {
        "argv": ["kdaprof", "probe"],
        "device": None,
        "device_missing": "no CUDA device",
        "nvml": NO_NVML,
        "environ": {},
        **changes,
    }
    return collect(**options)  # type: ignore[arg-type]


def test_real_environment_knows_versions_settings_and_host() -> None:
    env = gathered()
    assert env.version("kdaprof")
    assert env.version("python")
    assert env.version("torch")
    assert env.torch is not None
    assert env.torch.matmul_precision in ("highest", "high", "medium")
    assert env.gpu is None
    assert env.gpu_missing == "no CUDA device"
    assert all(v.version or v.missing for v in env.versions)
    assert msgspec.json.decode(msgspec.json.encode(env), type=Environment) == env


def test_card_and_driver() -> None:
    env = gathered(device=FAKE_TRAITS, nvml=open_nvml(lambda: FakePynvml([FakeCard("GPU-a", "00000000:01:00.0")])))
    assert env.gpu is not None
    assert (env.gpu.capability, env.gpu.sm_count) == ("9.0", 132)
    assert env.gpu_missing is None
    assert env.version("driver") == "580.0"
    assert gathered().version("driver") is None


def test_variables_that_matter_are_kept_and_secrets_are_not() -> None:
    names = [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_LAUNCH_BLOCKING",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_INTERPRET",
        "FLA_TRIL_PRECISION",
        "NVIDIA_TF32_OVERRIDE",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "OMP_NUM_THREADS",
        "NCCL_NVLS_ENABLE",
    ]
    others = ["PATH", "HOME", "TORCH_HUB_TOKEN", "MY_TRITON_THING", "NCCL_API_KEY", "AWS_SECRET_ACCESS_KEY"]
    kept = relevant_variables(dict.fromkeys(names + others, "1"))
    assert [v.name for v in kept] == sorted(names)


def test_git_commit_of_a_real_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    assert "no git repository" in (gathered(cwd=tmp_path).git_missing or "")
    git("init", "-q")
    assert "no git repository with a commit" in (gathered(cwd=tmp_path).git_missing or "")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    clean = gathered(cwd=tmp_path)
    assert clean.git_commit is not None
    assert (len(clean.git_commit), clean.git_dirty) == (40, False)
    (tmp_path / "file").write_text("2")
    assert gathered(cwd=tmp_path).git_dirty is True


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("git"), "not installed"),
        (subprocess.TimeoutExpired("git", 5), "did not answer"),
        (subprocess.CalledProcessError(128, "git"), "no git repository"),
    ],
)
def test_git_that_fails_is_a_reason(error: Exception, words: str) -> None:
    def run(_: Sequence[str], __: Path) -> str:
        raise error

    env = gathered(run_git=run)
    assert env.git_commit is None
    assert words in (env.git_missing or "")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/srv/jobs/exp-1/out", "<cwd>/out"),
        ("--out=/srv/jobs/exp-1", "--out=<cwd>"),
        ("/srv/jobs/exp-10/out", "<path>"),
        ("/home/mallory/.cache/triton", "<home>/.cache/triton"),
        ("/opt/torch/bin/python3", "<path>"),
        ("LD=/usr/lib:/opt/lib64", "LD=<path>:<path>"),
        ("PYTHONPATH='/a/b c'", "PYTHONPATH='<path> c'"),
        ("file:///data/set.json", "<path>"),
        (r"C:\Users\mallory\run", "<path>"),
        ("on gpu-box-7 as mallory", "on <host> as <user>"),
        ("gpu-box-7.example.com", "<host>.example.com"),
        # Not paths, not names: left alone.
        ("B10/T512", "B10/T512"),
        ("3.1 FLOP/byte at 4.27 TB/s", "3.1 FLOP/byte at 4.27 TB/s"),
        ("runs/today/x.json", "runs/today/x.json"),
        ("./here/x", "./here/x"),
        ("https://example.com/a/b", "https://example.com/a/b"),
        ("kda/fused/plain/eager/fwd", "kda/fused/plain/eager/fwd"),
        ("remallory", "remallory"),
        ("torch 2.13.0+cpu", "torch 2.13.0+cpu"),
    ],
)
def test_scrubbing(text: str, clean: str) -> None:
    assert scrub_text(text, WHO) == clean


def test_nothing_that_identifies_survives_anywhere() -> None:
    env = replace(
        gathered(
            argv=["/home/mallory/venv/bin/kdaprof", "--out", "/srv/jobs/exp-1/runs"],
            environ={"TORCHINDUCTOR_CACHE_DIR": "/home/mallory/cache", "KDAPROF_NOTE": "by mallory@gpu-box-7"},
        ),
        cwd="/srv/jobs/exp-1",
    )
    env = replace(env, host=replace(env.host, hostname="gpu-box-7"))
    text = msgspec.json.encode(anonymised(env, WHO)).decode()
    for secret in ("mallory", "gpu-box-7", "/srv", "/home"):
        assert secret not in text
    kept = anonymised(env, WHO)
    assert kept.versions == env.versions
    assert kept.torch == env.torch
    assert kept.argv == anonymised_argv(env.argv, WHO) == ("<home>/venv/bin/kdaprof", "--out", "<cwd>/runs")


def test_real_secrets_are_scrubbed_from_the_real_environment() -> None:
    env = gathered()
    who = secrets()
    kept = anonymised(env, who)
    assert kept.host.hostname is None
    assert kept.cwd is None
    text = msgspec.json.encode(kept).decode()
    assert who.cwd is not None
    assert f'"{who.cwd}' not in text


def test_scrub_goes_into_every_container() -> None:
    nested = {"/a/b": [("gpu-box-7", 3, None)], "n": 1.5}
    assert scrub(nested, WHO) == {"<path>": [("<host>", 3, None)], "n": 1.5}


def test_names_go_from_free_text_alone_and_paths_from_everywhere() -> None:
    who = replace(WHO, user="ok", hostname="cuda")
    error = CellError(type="ok", text="ok@cuda: /opt/x is full")
    assert scrub(error, who) == CellError(type="ok", text="<user>@<host>: <path> is full")
    assert scrub(MissingField("cuda", "not on cuda"), who) == MissingField("cuda", "not on <host>")
    assert scrub(ForeignProcess(7, "ok", None, None), who) == ForeignProcess(7, "<user>", None, None)
    assert scrub(Variable("ok", "/opt/ok"), who) == Variable("ok", "<path>")
    assert scrub(CellError(type="/opt/x", text=""), who).type == "<path>"


def test_a_directory_right_under_the_root_is_no_unit() -> None:
    who = replace(WHO, cwd="/s", home="/root")
    assert scrub_text("4.1 B/s in /s/runs of /root/x", who) == "4.1 B/s in <cwd>/runs of <home>/x"


OWN_WORDS = {
    "against",
    "backward",
    "cache",
    "capability",
    "chosen",
    "compute_mode",
    "container",
    "context",
    "cpu_model",
    "dtype",
    "forward",
    "git_commit",
    "governor",
    "machine",
    "matmul_precision",
    "mode",
    "name",
    "path",
    "patterns",
    "pci_bus_id",
    "phase",
    "rate",
    "run",
    "shape",
    "throttle_reasons",
    "timeline",
    "tool",
    "type",
    "uuid",
    "version",
    "workload",
}


def every_text_field() -> set[tuple[str, str]]:
    """Class and field of every string that a run's or a watch's record can hold."""
    found: set[tuple[str, str]] = set()
    left: list[Any] = [RunRecord, WatchRecord]
    seen: set[Any] = set()
    while left:
        kind = left.pop()
        if kind in seen:
            continue
        seen.add(kind)
        if is_dataclass(kind):
            hints = get_type_hints(kind)
            found |= {(kind.__name__, name) for name, hint in hints.items() if "str" in repr(hint)}
            left += hints.values()
        left += get_args(kind)
    return found


def test_every_text_of_a_record_is_either_free_or_a_word_of_its_own() -> None:
    """A field that is new must be put into `FREE_TEXT` when people, programs or systems write it."""
    words = {name for _, name in every_text_field() if name not in FREE_TEXT}
    assert words == OWN_WORDS
