"""Shapes and dtypes that the peers publish their own figures for, by name (`probe --preset`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OpPreset:
    """`shape` as `--shape` takes it: B,T,H,K,V; torch's name of the dtype."""

    shape: str
    dtype: str
    what: str


PRESETS: Final = {
    "production": OpPreset("10,512,12,64,64", "float32", "the field reports' shape"),
    "fla-model": OpPreset("4,2048,16,128,128", "bfloat16", "the default of FLA's KDA layer"),
    "fla-registry": OpPreset("1,8192,96,128,128", "bfloat16", "the shape in FLA's benchmark registry"),
}
"""By name; a flag beside it (`--shape`, `--dtype`) is for another shape and is refused."""
