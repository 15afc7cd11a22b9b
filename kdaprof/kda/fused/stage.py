"""One kernel, ready to launch, by the shortest way that is right for a call.

`kernel[grid](…)` binds, specialises and looks up its arguments at every call. A compiled handle does not, but still
builds a closure and what launch hooks want to know; its `run` is what remains. The handle was compiled for pointers
at 16-byte borders, so a call with any other pointer goes the long way, where Triton compiles a version for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import Tensor


def addresses(tensors: tuple[Tensor | None, ...]) -> tuple[list[int | None], bool]:
    """The address of each, and whether all lie at 16-byte borders, as the handles want it."""
    found = [None if x is None else x.data_ptr() for x in tensors]
    bits = 0
    for at in found:
        if at is not None:
            bits |= at
    return found, bits & 15 == 0


@lru_cache(maxsize=1)
def _triton() -> tuple[Any, Any]:
    """Triton's driver and the knobs of its runtime, imported once."""
    from triton import knobs  # noqa: PLC0415
    from triton.runtime import driver  # noqa: PLC0415

    return driver, knobs.runtime


def _hooked(chain: Any) -> bool:
    """Whether anybody (a profiler) hangs in a chain of launch hooks; a kind of hook that is not known counts as one."""
    return chain is not None and bool(getattr(chain, "calls", True))


class Stage:
    """One kernel with its constants and options and, once compiled, its handle."""

    __slots__ = ("_compiled", "_constants", "_direct", "_kernel", "_options", "_values")

    def __init__(self, kernel: Any, constants: dict[str, Any], **options: Any) -> None:
        """`constants` are the kernel's last parameters, in any order; `options` are Triton's."""
        self._kernel, self._constants, self._options = kernel, constants, options
        self._values = tuple(constants[name] for name in kernel.arg_names[-len(constants) :])
        self._compiled: Any = None
        self._direct: tuple[Any, Any, Any] | None = None

    @property
    def compiled(self) -> bool:
        """Whether there is a handle: an aligned launch then takes addresses as well as tensors."""
        return self._compiled is not None

    def __call__(self, grid: int, aligned: bool, *arguments: Any) -> None:
        """Launch `grid` programs; `aligned` says that every pointer in `arguments` is a multiple of 16."""
        if not (aligned and self._compiled is not None):
            compiled = self._kernel[(grid,)](*arguments, **self._constants, **self._options)
            if aligned:
                self._keep(compiled)
            return
        driver, hooks = _triton()
        if self._direct is None or _hooked(hooks.launch_enter_hook) or _hooked(hooks.launch_exit_hook):
            self._compiled[(grid, 1, 1)](*arguments, *self._values)
            return
        run, function, metadata = self._direct
        active = driver.active
        stream = active.get_current_stream(active.get_current_device())
        run(grid, 1, 1, stream, function, metadata, None, None, None, *arguments, *self._values)

    def compile(self, *arguments: Any) -> None:
        """Compile and load for aligned pointers without a launch; a torch dtype in `arguments` stands for a tensor."""
        if self._compiled is None:
            compiled = self._kernel.warmup(*arguments, grid=(1,), **self._constants, **self._options)
            compiled[(1, 1, 1)]  # loads the module and builds the launcher; launches nothing
            self._keep(compiled)

    def _keep(self, compiled: Any) -> None:
        run, function, metadata = (getattr(compiled, name, None) for name in ("run", "function", "packed_metadata"))
        if run is not None and function is not None and metadata is not None:
            self._direct = (run, function, metadata)
        self._compiled = compiled
