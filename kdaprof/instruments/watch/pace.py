"""How often a dear reading is taken: as often as its own cost allows, and what the watch costs as a whole.

A watch at 2 Hz may cost 0.2 % of a core. What the plain readings take (some 0.3 ms together) and our own part leave the
rest to the dear ones; at a higher rate the user has asked for more, and each gets more in proportion.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW_PERIOD_NS = 1_000_000_000
"""What changes slowly is looked at once a second at most, however cheap it is."""

OWN_SHARE = 0.0018
"""Of a core, at 2 Hz: all that a watch costs, while dear readings can wait."""

_SLOWEST_NS = 120 * 1_000_000_000
_NEVER_NS = 2**62
_AT_HZ = 2.0


def share_at(share: float, hz: float) -> float:
    """The share of a core for a reading, given as that at 2 Hz, at another rate: never less."""
    return share * max(1.0, hz / _AT_HZ)


class Budget:
    """What a watch has cost since its first reading, all cards and readings, against `share` of a core.

    What each dear reading cost when it was last taken is set aside: at the end of the watch they are taken once more.
    """

    def __init__(self, share: float, cpu_ns: Callable[[], int] = time.process_time_ns) -> None:
        self._share = share
        self._cpu_ns = cpu_ns
        self._origin: tuple[int, int] | None = None
        self._set_aside: dict[int, int] = {}

    def set_aside(self, reading: int, cost_ns: int) -> None:
        """Keep `cost_ns` for the end of `reading`, in place of what was kept for it before."""
        self._set_aside[reading] = cost_ns

    def allows(self, reading: int, t_ns: int) -> bool:
        """Whether `reading` at `t_ns` leaves the watch within its share; yes to the first to ask, at its beginning."""
        if self._origin is None:
            self._origin = (t_ns, self._cpu_ns())
        began_ns, cpu_ns = self._origin
        wanted_ns = sum(self._set_aside.values()) + self._set_aside.get(reading, 0)
        return t_ns == began_ns or self._cpu_ns() - cpu_ns + wanted_ns <= self._share * (t_ns - began_ns)


class Pace:
    """Lets a reading happen each `period_ns`, and less often where it is dear: at most `share` of a core.

    The first is due `first_ns` after it was first asked for. `share` None: the cost does not matter. A reading that
    is due waits, two minutes at most, while the whole watch is over its `budget`.
    """

    def __init__(
        self,
        share: float | None,
        *,
        period_ns: int = SLOW_PERIOD_NS,
        first_ns: int = 0,
        budget: Budget | None = None,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._share = share
        self._period_ns = period_ns
        self._first_ns = first_ns
        self._budget = budget
        self._cpu_ns = cpu_ns
        self._due_ns: int | None = None
        self._began_ns = 0

    def begins(self, t_ns: int, *, last: bool = False) -> bool:
        """Whether a reading is due (the `last` one always is, but for a reading that is never due again).

        Then it is taken, and `ends` says that it was.
        """
        if self._due_ns is None:
            self._due_ns = t_ns + self._first_ns
        if self._due_ns == _NEVER_NS or not (last or self._may(t_ns, self._due_ns)):
            return False
        self._due_ns = t_ns + self._period_ns
        self._began_ns = self._cpu_ns()
        return True

    def _may(self, t_ns: int, due_ns: int) -> bool:
        if t_ns < due_ns:
            return False
        return self._budget is None or self._budget.allows(id(self), t_ns) or t_ns >= due_ns + _SLOWEST_NS

    def ends(self, t_ns: int) -> None:
        """The reading of `t_ns` is taken: what it cost sets when the next is due."""
        cost_ns = self._cpu_ns() - self._began_ns
        if self._budget is not None:
            self._budget.set_aside(id(self), cost_ns)
        if self._share is not None:
            self._due_ns = t_ns + min(max(self._period_ns, round(cost_ns / self._share)), _SLOWEST_NS)

    def never_again(self) -> None:
        """No reading will be due."""
        self._due_ns = _NEVER_NS
