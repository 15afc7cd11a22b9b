"""Names of runs."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime


def new_run_id(slug: str, now: datetime | None = None) -> str:
    """`20261202T015500Z-kda-fused-1f3a`: UTC start, what was run, and four hex digits against clashes."""
    moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}-{re.sub(r'[^a-z0-9]+', '-', slug.lower()).strip('-')}-{secrets.token_hex(2)}"
