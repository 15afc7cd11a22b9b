"""What does one matrix product take in each precision, with clock, power and temperature beside its samples?

For the record on a GPU: `python probes/gemm_precisions.py --anonymous --force --out OUT` (the field report's product;
50 s on an H200).
"""

from __future__ import annotations

from _run import probe

probe("--workload", "gemm")
