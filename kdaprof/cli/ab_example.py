"""What `kdaprof ab --example` prints: a contract that works as it stands, and says what every key means."""

from __future__ import annotations

EXAMPLE = """\
# A contract of `kdaprof ab`: what is compared, on what, and what must come out. Save it as contract.toml, then
#     kdaprof ab contract.toml
# It states what is frozen BEFORE the first measurement: after the first attempt the file may not change (but for
# `cand`), and a key that is not known is an error.
schema = "kdaprof.ab-contract/1"
name = "tensor-against-rows"     # attempts are counted under this name
kind = "paths"                   # paths | targets | revisions: what base and cand are
base = "tensor-rows"             # paths: of `kdaprof probe --path`; --base and --cand override
cand = "tensor"
# kind = "targets"               # base = "mine.steps:make_step": make_step(device) returns what is timed, or an
#                                # object with `phases` (name -> callable), each target in a process of its own
# kind = "revisions"             # base = "main", cand = "my-branch": commits, each in a worktree of its own, with
# [repository]                   # a fresh process a block
# path = "."                     # relative to this file
# command = ["{python}", "bench/time_it.py"]   # {python} is the interpreter that kdaprof runs in
#
# The command finds KDAPROF_AB_SHAPES, KDAPROF_AB_SAMPLES, KDAPROF_AB_SIDE and KDAPROF_AB_ROUND in its environment,
# warms up, times, and writes one line of JSON a shape to the file KDAPROF_AB_OUT. bench/time_it.py in ten lines:
#     import json, os, time
#     from mine import step                       # from the worktree: it stands first in PYTHONPATH
#     with open(os.environ["KDAPROF_AB_OUT"], "w") as out:
#         for shape in os.environ["KDAPROF_AB_SHAPES"].split(","):
#             walls = []
#             for i in range(10 + int(os.environ["KDAPROF_AB_SAMPLES"])):
#                 begin = time.perf_counter_ns()
#                 step(shape)                     # on a GPU, synchronise before and after
#                 walls.append(time.perf_counter_ns() - begin)
#             out.write(json.dumps({"shape": shape, "wall_ns": walls[10:], "peak_bytes": None}) + "\\n")

[measure]
rounds = 6                       # at least 5: the interval rests on rounds, not on samples. On synthetic data with
                                 # heavy tails, outliers and drift, 8 rounds of 20 samples saw a true difference of
                                 # 5 % in 94 of 100 trials or more, and called A/A different in 5
samples = 6                      # a side, shape and round; even, since a round is A B B A or B A A B
warmup = 3                       # calls before the first round (paths, targets)
device = "auto"                  # auto | cpu | cuda | cuda:N (paths, targets)
seed = 0                         # of the inputs, and of which side opens a round
timeout_s = 600                  # bound on one process

[op]                             # kind "paths" only
phase = "fwd"                    # fwd | bwd | fwdbwd
dtype = "float32"
chunk = 16

[frozen]                         # checked first, on both sides; a failure ends the experiment before any timing
command = ["{python}", "-c", "import kdaprof.kda"]   # your tests, for example ["{python}", "-m", "pytest", "-q"]
timeout_s = 600
[frozen.files]                   # what nobody may edit to win: path = SHA-256 (`sha256sum FILE`)
# "tests/test_op.py" = "0f1e…"   # relative to this file; for revisions, to each worktree

[attempts]
most = 3                         # the stop rule: after so many measured attempts no further one is

[[shapes]]
name = "public"
role = "representative"          # representative | fallback | control
size = "1,64,2,32,32"            # B,T,H,K,V (paths); targets take env = { BATCH = "8" } instead

[[shapes]]
name = "short"
role = "control"
size = "1,16,2,32,32"

# Gates. Each takes shapes = ["name", ...] or roles = ["role", ...], or looks at all shapes.
# A gate passes when the whole 95 % interval is on its good side, fails when all of it is on the bad side, and is
# not established in between. One that fails: NO-GO (exit 3). All pass: GO (exit 0). Otherwise exit 4.

[[gates]]
kind = "stage-share"             # before any work: is there enough to win (Amdahl)?
min = 0.2                        # the stages to be replaced are at least this share of the whole
bound = 1.1                      # and removing them could reach this speedup
share = 0.3                      # declared, with its source; or run = "runs/…", cell = "kda/…", stages = ["…"]
source = "an example, not a measurement"

[[gates]]
kind = "speedup"                 # each chosen shape reaches min
shapes = ["public"]
min = 1.1

[[gates]]
kind = "geomean"                 # the geometric mean of the chosen shapes does
roles = ["representative"]
min = 1.08

[[gates]]
kind = "any-speedup"             # at least one does; intervals are widened for the number of chances
min = 1.05

[[gates]]
kind = "non-regression"          # none takes more than 1 + band times the base's time
band = 0.02

# [[gates]]
# kind = "peak-change"           # peak memory, candidate - base: a saving that was promised must be seen
# shapes = ["public"]
# at_most_bytes = -33554432      # also at_least_bytes, and at_most / at_least as fractions of the base
"""
