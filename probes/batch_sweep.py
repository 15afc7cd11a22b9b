"""What does a step cost at any batch, and from which batch on does the GPU bound it?"""

from __future__ import annotations

import sys

from kdaprof.cli.main import main

sys.exit(main(["sweep", "--over", "batch=1,2,4,8,16,32", *sys.argv[1:]]))
