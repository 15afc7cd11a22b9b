"""How a running loop is written into a timeline, and named in cells: its steps, its phases, and what lies between."""

from __future__ import annotations

STEP_RANGE = "ProfilerStep#"
"""Range of step 7: `ProfilerStep#7`, as torch's own profiler names steps."""
PHASE_RANGE = "phase "
"""Range of one entry of phase fwd: `phase fwd`; a loop's own annotations are rarely called so."""
WHOLE = "step"
"""The step itself among the phases."""
OTHER = "other"
"""What lies outside all phases of a step."""
