"""Known faults of versions on cards, as data. To add one: an entry below, with where it was reported.

A fault speaks when the card's architecture is among `archs` and every package is installed in a version inside its
range. Ranges are those of `packaging` (`>=3.4,<3.7.1`); a development build counts as its release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from kdaprof.runs.arch import Arch, on_arch

FLA = "https://github.com/fla-org/flash-linear-attention"
TRITON = "https://github.com/triton-lang/triton"

HOPPER: tuple[Arch, ...] = ((9, 0),)
DATACENTRE_BLACKWELL: tuple[Arch, ...] = ((10, None),)
BLACKWELL: tuple[Arch, ...] = ((10, None), (12, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFault:
    """One fault: where it strikes, what goes wrong, what to do, who reported it."""

    id: str
    archs: tuple[Arch, ...]
    packages: Mapping[str, str]
    text: str
    next: str
    source: str

    def strikes(self, capability: tuple[int, int], version: Callable[[str], str | None]) -> bool:
        """Whether a card of this capability with these versions has it."""
        return on_arch(self.archs, capability) and all(
            in_range(version(name), wanted) for name, wanted in self.packages.items()
        )


FAULTS: tuple[KnownFault, ...] = (
    KnownFault(
        id="hopper-gated-backward",
        archs=HOPPER,
        packages={"triton": ">=3.4,<3.7.1"},
        text="Triton miscompiles a dot of a transposed dot result on Hopper: FLA's gated backward (chunk_bwd_dqkwg) "
        "gives wrong dg and dbeta, and FLA refuses to run it; KDA's own kernels are another code",
        next="take triton>=3.7.1 (torch>=2.12.1 asks for it) before training with gated delta rule, or install "
        "tilelang; compare gradients with path reference",
        source=f"{FLA}/issues/640, {FLA}/pull/983",
    ),
    KnownFault(
        id="hopper-delta-rule-wy-backward",
        archs=HOPPER,
        packages={"triton": ">=3.4", "fla-core": "<0.6"},
        text="FLA's delta-rule backward (prepare_wy_repr_bwd, chunk 64, 4 warps) gives wrong dk and dbeta on Hopper",
        next="take fla-core>=0.6, whose tuning is kept to 2 warps there",
        source=f"{FLA}/issues/984, {FLA}/pull/988",
    ),
    KnownFault(
        id="blackwell-dot-recurrence",
        archs=BLACKWELL,
        packages={"triton": ">=3.3,<3.8"},
        text="a kernel that carries a tl.dot result through a loop may give other bits at every call with 4 or 8 warps "
        "(seen on sm_100 and sm_103); FLA keeps such kernels to 2 warps on every Blackwell",
        next="keep recurrences to 2 warps, as kdaprof's fused path does, and compare two runs of your own kernels bit "
        "by bit; widen only with Triton 3.8",
        source=f"{FLA}/issues/945, {FLA}/pull/953, {TRITON}/issues/10590, {TRITON}/issues/9871",
    ),
    KnownFault(
        id="blackwell-gated-backward-hang",
        archs=BLACKWELL,
        packages={"fla-core": "<0.6"},
        text="FLA's gated backward can hang while prepare_wy_repr_bwd is tuned on Blackwell (long sequences, B200)",
        next="take fla-core>=0.6, which keeps that kernel to 2 warps and 4 stages there",
        source=f"{FLA}/issues/999, {FLA}/pull/1000",
    ),
    KnownFault(
        id="blackwell-chunk-o-nondeterministic",
        archs=DATACENTRE_BLACKWELL,
        packages={"triton": ">=3.6,<3.8", "fla-core": "<=0.6.0"},
        text="FLA's chunk_fwd_o with 8 warps gives other bits at every call on sm_103",
        next="take an FLA of after 2026-09-07 (#1229), or keep that kernel to 4 warps",
        source=f"{FLA}/issues/1228, {FLA}/pull/1229",
    ),
    KnownFault(
        id="sm100-kda-backward-tuning",
        archs=((10, 0),),
        packages={"fla-core": "<=0.6.0"},
        text="tuning FLA's chunk_kda backward on sm_100 can access memory that is not its own and end the CUDA context",
        next="take an FLA of after 2026-08-06 (#1109), or run the tuning in a process of its own",
        source=f"{FLA}/pull/1109",
    ),
    KnownFault(
        id="blackwell-gated-forward-nan",
        archs=DATACENTRE_BLACKWELL,
        packages={"fla-core": ""},
        text="FLA's gated forward (kkt_solve) was seen to give NaN from 1,024 blocks on, on B200; closed unfixed",
        next="check outputs for NaN at your own shape before timing it",
        source=f"{FLA}/issues/913",
    ),
)


def in_range(version: str | None, wanted: str) -> bool:
    """Whether `version` is inside the range; local parts (`+cu130`) do not count, an unreadable one is outside."""
    if version is None:
        return False
    try:
        release = Version(Version(version).base_version)
        return release in SpecifierSet(wanted)
    except (InvalidVersion, InvalidSpecifier):
        return False
