"""What does a step cost at any batch, and from which batch on does the GPU bound it?"""

from __future__ import annotations

from _run import sweep

sweep("batch=1,2,4,8,16,32")
