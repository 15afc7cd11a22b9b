"""The end of the process: an interrupt is never dropped, and its exit code is what a shell sees."""

from __future__ import annotations

import subprocess
import sys

DROPPED = """
import signal, sys, time, types, weakref
from importlib.machinery import ModuleSpec
from kdaprof.cli import main as cli

class Thing: pass

def run(argv):
    thing = Thing()
    def callback(_):  # Python drops what is raised here, as in the callbacks of an import's locks
        signal.raise_signal(signal.SIGINT)
        for _ in range(10): pass
    ref = weakref.ref(thing, callback)
    del thing
    for _ in range(100): time.sleep(0.01)
    return 0

module = types.ModuleType("verb")
module.run, module.__spec__ = run, ModuleSpec("verb", None)
sys.modules["verb"] = module
cli.VERBS["verb"] = cli.Verb("verb", "a verb for tests")
sys.argv = ["kdaprof", "verb"]
cli.entry()
"""

LAST = """
import atexit, sys
from kdaprof.cli.ending import at_last
at_last(lambda: {code})
atexit.register(print, "what was registered later ran")
sys.exit(1)
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_an_interrupt_that_python_drops_comes_again() -> None:
    done = ended(DROPPED)
    assert (done.returncode, done.stderr) == (130, "kdaprof: interrupted\n")


def test_the_last_code_wins_and_all_others_had_their_turn() -> None:
    done = ended(LAST.format(code=130))
    assert (done.returncode, done.stdout) == (130, "what was registered later ran\n")


def test_without_a_last_code_the_process_ends_as_it_would() -> None:
    assert ended(LAST.format(code=None)).returncode == 1
