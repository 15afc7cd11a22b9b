"""How often a dear reading is taken: as often as its own cost allows.

A watch at 2 Hz may cost 0.2 % of a core. The plain readings take some 0.3 ms together, which leaves 0.06 % for the
dear ones; at a higher rate the user has asked for more, and each gets more in proportion.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW_PERIOD_NS = 1_000_000_000
"""What changes slowly is looked at once a second at most, however cheap it is."""

_SLOWEST_NS = 120 * 1_000_000_000
_NEVER_NS = 2**62
_AT_HZ = 2.0


def share_at(share: float, hz: float) -> float:
    """The share of a core for a reading, given as that at 2 Hz, at another rate: never less."""
    return share * max(1.0, hz / _AT_HZ)


class Pace:
    """Lets a reading happen each `period_ns`, and less often where it is dear: at most `share` of a core.

    The first is due `first_ns` after it was first asked for. `share` None: the cost does not matter.
    """

    def __init__(
        self,
        share: float | None,
        *,
        period_ns: int = SLOW_PERIOD_NS,
        first_ns: int = 0,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._share = share
        self._period_ns = period_ns
        self._first_ns = first_ns
        self._cpu_ns = cpu_ns
        self._due_ns: int | None = None
        self._began_ns = 0

    def begins(self, t_ns: int, *, last: bool = False) -> bool:
        """Whether a reading is due (the `last` one always is, but for a reading that is never due again).

        Then it is taken, and `ends` says that it was.
        """
        if self._due_ns is None:
            self._due_ns = t_ns + self._first_ns
        if self._due_ns == _NEVER_NS or (t_ns < self._due_ns and not last):
            return False
        self._due_ns = t_ns + self._period_ns
        self._began_ns = self._cpu_ns()
        return True

    def ends(self, t_ns: int) -> None:
        """The reading of `t_ns` is taken: what it cost sets when the next is due."""
        if self._share is not None:
            wanted = round((self._cpu_ns() - self._began_ns) / self._share)
            self._due_ns = t_ns + min(max(self._period_ns, wanted), _SLOWEST_NS)

    def never_again(self) -> None:
        """No reading will be due."""
        self._due_ns = _NEVER_NS
