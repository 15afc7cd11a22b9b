"""The runs on paper are kept beside the tests of the report; these tests use them too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "report"))
