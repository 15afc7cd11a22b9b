"""Markers that depend on the machine: `gpu` tests skip with a message where there is no NVIDIA GPU."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """Take Ctrl-C even where the tests were started in the background, where a shell has children ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _gpu_missing() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "no NVIDIA GPU here; `make gpu-check` runs this on one"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot show, with the reason."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _gpu_missing() if marked else None
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def _in_a_group() -> bool:
    distributed = sys.modules.get("torch.distributed")  # a test that never imported it has no group
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


@pytest.fixture(autouse=True)
def no_process_group_left() -> Iterator[None]:
    """The process group that a test makes (DistributedDataParallel starts one of size 1) ends with that test."""
    before = _in_a_group()
    yield
    if _in_a_group() and not before:
        sys.modules["torch.distributed"].destroy_process_group()
