"""What does an iteration of the looped block cost, and what a step without any?"""

from __future__ import annotations

from _run import sweep

sweep("max_iter=1,2,3,4,6,8")
