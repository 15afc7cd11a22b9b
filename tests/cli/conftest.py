"""Builders that other tests keep beside them are used here too: runs on paper, and scenes with samples."""

from __future__ import annotations

import sys
from pathlib import Path

UNIT = Path(__file__).resolve().parents[1] / "unit"
sys.path += [str(UNIT / "report"), str(UNIT / "analysis")]
