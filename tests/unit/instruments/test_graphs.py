"""The order and the cleaning up of a capture, with a backend that has no device."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from kdaprof.instruments.capturefault import CaptureFailure, error_code, find_unsafe_operation
from kdaprof.instruments.fakes import FakeGraphBackend
from kdaprof.instruments.graph_backend import private_bytes
from kdaprof.instruments.graphs import Captured, CapturedPair, capture, capture_pair


class Capturing(RuntimeError):
    """What torch raises when an operation waits inside a capture."""

    error_code = 900


def item_in_capture(backend: FakeGraphBackend, x: torch.Tensor) -> float:
    if backend.capturing:
        raise Capturing("CUDA error: operation not permitted when stream is capturing\nmore words")
    return (x * 2).sum().item()


def test_a_capture_warms_up_then_records_once() -> None:
    backend = FakeGraphBackend()
    calls: list[bool] = []

    def fn() -> str:
        calls.append(backend.capturing)
        return "out"

    captured = capture(fn, warmup=2, backend=backend)
    assert isinstance(captured, Captured)
    assert calls == [False, False, True]
    assert backend.log == ["stream>", "<stream", "synchronize", "stream>", "begin", "end", "<stream"]
    assert captured.outputs == "out"
    assert (captured.pool_bytes, captured.pool_allocated_bytes) == (2 << 20, 4096)
    captured.replay()
    captured.replay()
    assert backend.replays == 2


def test_garbage_is_not_collected_inside_and_the_random_state_is_put_back() -> None:
    backend = FakeGraphBackend()
    collecting: list[bool] = []

    def fn() -> None:
        collecting.append(gc.isenabled())
        backend.random += 1

    assert gc.isenabled()
    capture(fn, warmup=1, backend=backend)
    assert collecting == [False, False]
    assert gc.isenabled()
    assert backend.random == 7


def test_a_failed_capture_names_operation_line_and_error_and_leaves_all_as_it_was() -> None:
    backend = FakeGraphBackend()
    x = torch.ones(3)
    failure = capture(lambda: item_in_capture(backend, x), backend=backend)
    assert isinstance(failure, CaptureFailure)
    assert failure.file == __file__
    assert failure.function == "item_in_capture"
    # The eager call that looks for the operation names it, and its line rather than the one that raised.
    assert failure.operation == "aten::_local_scalar_dense in `(x * 2).sum().item()`"
    assert failure.error_code == 900
    assert failure.error_text == "CUDA error: operation not permitted when stream is capturing"
    assert "900" in failure.hint
    assert ".item()" in failure.hint
    assert f"{__file__}:{failure.line} in item_in_capture" in str(failure)
    assert "abandon" in backend.log
    assert not backend.capturing
    assert not backend.stuck
    assert backend.random == 7
    assert gc.isenabled()


def test_the_next_capture_after_a_failed_one_succeeds() -> None:
    backend = FakeGraphBackend()
    assert isinstance(capture(lambda: item_in_capture(backend, torch.ones(1)), backend=backend), CaptureFailure)
    assert isinstance(capture(lambda: torch.ones(1), backend=backend), Captured)


def test_a_failure_that_no_operation_explains_gives_the_users_expression() -> None:
    backend = FakeGraphBackend()

    def fn() -> int:
        if backend.capturing:
            raise Capturing("operation not permitted when stream is capturing")
        return int("17")

    failure = capture(fn, backend=backend)
    assert isinstance(failure, CaptureFailure)
    assert failure.operation is not None
    assert failure.operation.startswith("raise Capturing(")
    assert failure.function == "fn"


def test_a_failure_when_the_capture_ends_is_a_failure_too() -> None:
    def broken() -> None:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    backend = FakeGraphBackend(on_end=broken)
    failure = capture(lambda: 1, backend=backend)
    assert isinstance(failure, CaptureFailure)
    assert failure.error_code == 901
    assert "901" in failure.hint
    assert backend.log.count("abandon") == 1


def test_a_failure_in_the_warm_up_never_begins_a_capture() -> None:
    backend = FakeGraphBackend()

    def fn() -> None:
        raise ValueError("wrong shape")

    failure = capture(fn, backend=backend)
    assert isinstance(failure, CaptureFailure)
    assert (failure.error_type, failure.error_code) == ("ValueError", None)
    assert "begin" not in backend.log


def test_an_interrupt_inside_a_capture_passes_through_and_cleans_up() -> None:
    backend = FakeGraphBackend()

    def fn() -> None:
        if backend.capturing:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture(fn, backend=backend)
    assert "abandon" in backend.log
    assert not backend.stuck
    assert gc.isenabled()


def test_a_failed_capture_holds_on_to_nothing() -> None:
    backend = FakeGraphBackend()
    held: list[weakref.ref[torch.Tensor]] = []

    def fn() -> None:
        big = torch.ones(4)
        held.append(weakref.ref(big))
        if backend.capturing:
            raise Capturing("stream is capturing")

    failure = capture(fn, backend=backend)
    assert isinstance(failure, CaptureFailure)
    assert all(ref() is None for ref in held)


def test_forward_and_backward_are_two_graphs_over_one_pool() -> None:
    backend = FakeGraphBackend()
    x = torch.ones(3, requires_grad=True)
    pair = capture_pair(lambda: x * x, lambda o: torch.autograd.grad(o.sum(), x), warmup=1, backend=backend)
    assert isinstance(pair, CapturedPair)
    assert backend.log.count("begin") == 2
    assert pair.pool_bytes == 2 * (2 << 20)
    assert torch.equal(pair.backward.outputs[0], 2 * torch.ones(3))
    pair.reset()
    assert backend.log[-4:] == ["synchronize", "reset", "synchronize", "reset"]


def test_a_backward_that_fails_frees_the_forward_graph() -> None:
    backend = FakeGraphBackend()

    def backward(_: object) -> None:
        if backend.capturing:
            raise Capturing("stream is capturing")

    assert isinstance(capture_pair(lambda: 1, backward, backend=backend), CaptureFailure)
    assert backend.log.count("begin") == 2
    assert backend.log.count("abandon") == 1
    assert "reset" in backend.log


def test_a_graph_keeps_its_call_alive_and_reset_lets_go() -> None:
    class Call:
        def __call__(self) -> int:
            return 1

    call = Call()
    ref = weakref.ref(call)
    captured = capture(call, backend=FakeGraphBackend())
    assert isinstance(captured, Captured)
    del call
    assert ref() is not None
    captured.reset()
    captured.reset()
    assert ref() is None
    with pytest.raises(RuntimeError, match="reset"):
        captured.replay()


@pytest.mark.parametrize(
    ("fn", "operation"),
    [
        (lambda: torch.ones(2).sum().item(), "aten::_local_scalar_dense"),
        (lambda: float(torch.ones(1)), "aten::_local_scalar_dense"),
        (lambda: torch.ones(3).nonzero(), "aten::nonzero"),
        (lambda: torch.arange(4.0)[torch.arange(4) > 1], "aten::index"),
        (lambda: torch.unique(torch.ones(3)), "aten::_unique2"),
        (lambda: torch.masked_select(torch.ones(2), torch.ones(2, dtype=torch.bool)), "aten::masked_select"),
    ],
)
def test_operations_that_wait_are_found_with_their_line(fn: object, operation: str) -> None:
    assert callable(fn)
    found = find_unsafe_operation(fn, device_type="cpu")
    assert found is not None
    assert found.operation == operation
    assert found.frame is not None
    assert found.frame.filename == __file__


@pytest.mark.parametrize(
    "fn",
    [
        lambda: torch.arange(4.0)[torch.tensor([1, 2])],
        lambda: torch.where(torch.ones(2) > 0, 1.0, 2.0),
        lambda: torch.ones(2).to(torch.float64),
        lambda: torch.ones(2).repeat_interleave(torch.tensor([1, 2]), output_size=3),
        lambda: torch.ones(4).copy_(torch.zeros(4)),
    ],
)
def test_operations_that_do_not_wait_are_left_alone(fn: object) -> None:
    assert callable(fn)
    assert find_unsafe_operation(fn, device_type="cpu") is None


def test_copies_between_host_and_device_are_found_and_pinned_ones_are_not() -> None:
    # The meta device stands for the card: it has no data, but the dispatcher sees the same copy.
    found = find_unsafe_operation(lambda: torch.ones(2).to("meta"), device_type="meta")
    assert found is not None
    assert (found.operation, "pageable" in found.reason) == ("aten::_to_copy", True)


def test_errors_are_known_by_number_and_by_words() -> None:
    assert error_code(Capturing("x")) == 900
    assert error_code(RuntimeError("CUDA error: operation not permitted when stream is capturing")) == 900
    assert error_code(RuntimeError("shape mismatch")) is None


def test_private_bytes_are_those_of_graphs_on_the_device_that_was_asked_for() -> None:
    pools = [(0, (0, 0), 1000), (0, (0, 3), 20), (0, (7, 0), 4), (1, (0, 3), 500)]
    segments = [{"device": device, "segment_pool_id": pool, "total_size": size} for device, pool, size in pools]
    assert (private_bytes(segments, 0), private_bytes(segments, 1), private_bytes([], 0)) == (24, 500, 0)
