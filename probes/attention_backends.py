"""How fast is attention on each backend that torch has for this card and dtype, and which does it not have?

For the record on a GPU: `python probes/attention_backends.py --anonymous --force --out OUT` (the field report's shape,
forward, three dtypes; 40 s on an H200).
"""

from __future__ import annotations

from _run import probe

probe("--workload", "mha")
