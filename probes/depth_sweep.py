"""What does an iteration of the looped block cost, and what a step without any?"""

from __future__ import annotations

import sys

from kdaprof.cli.main import main

sys.exit(main(["sweep", "--over", "max_iter=1,2,3,4,6,8", *sys.argv[1:]]))
