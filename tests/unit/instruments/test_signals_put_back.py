"""Where kdaprof takes signals for a while, a handler that C code had set is there again afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from kdaprof.analysis.trace.files import _interrupts_held
from kdaprof.cli.stopping import stoppable
from kdaprof.instruments.watch.command import FORWARDED, handled
from kdaprof.signals import signals_to

PLACES = {
    "stoppable": "from kdaprof.cli.stopping import stoppable as place",
    "handled": "from kdaprof.instruments.watch.command import handled; place = lambda: handled(lambda number: None)",
    "_interrupts_held": "from kdaprof.analysis.trace.files import _interrupts_held as place",
}

# The handler is libc's `_exit`: whoever gets the signal ends with its number. A signal module loaded after that knows
# the handler as None, as in a program that embeds Python; one that was there before does not know of it.
FROM_C = """
import ctypes, os, signal, sys
{place}
libc = ctypes.CDLL(None)
libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
libc.signal(signal.SIGINT, ctypes.cast(libc._exit, ctypes.c_void_p))
if {known}:
    del sys.modules["_signal"]
    import _signal
    assert signal.getsignal(signal.SIGINT) is None
with place():
    pass
print("out again", flush=True)
os.kill(os.getpid(), signal.SIGINT)
print("not theirs")
"""


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_a_handler_from_c_is_put_back(place: str, known: bool) -> None:
    script = FROM_C.format(place=PLACES[place], known=known)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (signal.SIGINT, "out again\n", "")


@pytest.mark.parametrize("place", [stoppable, lambda: handled(lambda number: None), _interrupts_held])
def test_off_the_main_thread_signals_stay_as_they_are(place: Callable[[], AbstractContextManager[None]]) -> None:
    before = [signal.getsignal(number) for number in FORWARDED]
    during: list[list[object]] = []

    def elsewhere() -> None:
        with place():
            during.append([signal.getsignal(number) for number in FORWARDED])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert during == [before]


def test_a_handler_from_python_is_put_back_also_after_an_error() -> None:
    came: list[str] = []

    def broken() -> None:
        with signals_to({signal.SIGUSR1: lambda *_: came.append("inside")}):
            signal.raise_signal(signal.SIGUSR1)
            raise KeyError

    before = signal.signal(signal.SIGUSR1, lambda *_: came.append("outside"))
    try:
        with pytest.raises(KeyError):
            broken()
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came == ["inside", "outside"]
