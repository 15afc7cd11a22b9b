"""`kdaprof roofline`: how far from the hardware is this, and what is it bound by?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser, check_ours, check_wait
from kdaprof.cli.standing import add_store_flag, store_of
from kdaprof.errors import Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.analysis.roofline_document import Roofline
    from kdaprof.analysis.roofline_measured import Call
    from kdaprof.kda.cost import Shape
    from kdaprof.runs.record import Ceiling

EXAMPLES = """\
examples:
  kdaprof roofline
      what each path computes and moves, and its floor under the ceilings of this card, measured now (seconds)
  kdaprof roofline --run reports/h200-kda
      under the ceilings of a stored run, with the share of the floor that its calls reached
  kdaprof roofline --run reports/h200-kda --svg roofline.svg
      the same as a picture
  kdaprof roofline --bytes field-report --bandwidth 1792e9 --rate 43.7e12 --tensors
      a report's own bytes under the ceilings that it declared: 0.386 ms, memory-bound; every tensor listed
  kdaprof roofline --bytes compulsory --bandwidth 1792e9 --rate 43.7e12
      the same ceilings with the bytes that the op must move: compute-bound. The basis decides, so it is named.

A floor is max(FLOP / rate, bytes / bandwidth). A declared ceiling gives figures in parentheses, which may not be
quoted (Q11). Without a card and with nothing declared the floors are missing; bytes and FLOP are not.

exit codes: 0 ok · 1 the run cannot be read · 2 usage · 5 another run measures on the card"""

_SHAPE = "10,512,12,64,64"
_CHUNK = 16
_PATHS = ("fused", "tensor", "compiled")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """Ceilings, multiprocessors and name of the card that is spoken of, and why ceilings are missing."""

    ceilings: tuple[Ceiling, ...] = ()
    sms: int | None = None
    name: str | None = None
    missing: str | None = None


def build_parser() -> argparse.ArgumentParser:
    """The flags of `roofline`."""
    parser = VerbParser(
        "roofline",
        description="Operations and bytes of the op on each path, every tensor listed; intensity, floor and the side "
        "that binds, for each way to count bytes; the serial chain; the share of the floor that a stored run reached.",
        epilog=EXAMPLES,
    )
    what = parser.add_argument_group("what")
    what.add_argument("--shape", metavar="B,T,H,K,V", help=f"default {_SHAPE}, or the run's")
    what.add_argument("--chunk", type=int, metavar="C", help=f"tokens a chunk (default {_CHUNK}, or the run's)")
    what.add_argument("--dtype", help="float32, bfloat16, float16, float64 (default float32, or the run's)")
    what.add_argument("--paths", metavar="P,P", help=f"default {','.join(_PATHS)}, or the run's")
    what.add_argument("--phases", default="fwd,bwd", metavar="P,P", help="fwd, bwd, fwdbwd (default %(default)s)")
    what.add_argument("--bytes", default="compulsory,path", metavar="B,B", help="compulsory, path, field-report")
    what.add_argument("--v-block", type=int, metavar="N", help="value channels a program of the chain (default: all)")
    under = parser.add_argument_group("under which ceilings")
    under.add_argument("--run", type=Path, metavar="RUN", help="ceilings and measured calls of a stored run")
    under.add_argument("--bandwidth", type=float, metavar="B/s", help="declare the memory's, read + written")
    under.add_argument("--rate", type=float, metavar="FLOP/s", help="declare the rate of every path's products")
    under.add_argument("--sms", type=int, metavar="N", help="declare the number of multiprocessors")
    under.add_argument("--wait", type=float, default=0.0, metavar="S", help="for a card that another run measures on")
    under.add_argument("--no-measure", action="store_true", help="measure nothing, also where there is a card")
    where = parser.add_argument_group("where it goes")
    where.add_argument("--tensors", action="store_true", help="list every tensor with shape, dtype and bytes")
    where.add_argument(
        "--svg", type=Path, metavar="FILE", help="write the picture here; it replaces a picture of before"
    )
    where.add_argument("--json", action="store_true", help="print the document (kdaprof.roofline/1), alone on stdout")
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Work it out, print, draw; returns the exit code."""
    args = build_parser().parse_args(argv)
    _check(args)
    roofline = _roofline(args)
    if args.svg is not None:
        _draw(args.svg, roofline)
    if args.json:
        from kdaprof.analysis.roofline_document import roofline_document
        from kdaprof.cli.console import print_json

        print_json(roofline_document(roofline, command=("kdaprof", "roofline", *argv)))
    else:
        from kdaprof.cli.console import out_console
        from kdaprof.report.roofline import show_roofline

        show_roofline(out_console(), roofline, tensors=args.tensors)
    return Exit.OK


def _check(args: argparse.Namespace) -> None:
    import math

    from kdaprof.runs.cells import DTYPES, PHASES

    for flag in ("bandwidth", "rate"):
        value = getattr(args, flag)
        if value is not None and not (math.isfinite(value) and value >= 1):
            raise UsageError(f"--{flag} {value:g}: must be 1 or more, for example --{flag} 1792e9")
    for flag in ("chunk", "sms", "v_block"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise UsageError(f"--{flag.replace('_', '-')} {value}: at least 1")
    if args.dtype is not None and args.dtype not in DTYPES:
        raise UsageError(f"--dtype {args.dtype!r} is unknown; known: {', '.join(DTYPES)}")
    _names("--phases", args.phases, PHASES)
    check_wait(args.wait)
    if args.svg is not None:
        from kdaprof.runs.atomic import check_file

        check_ours("--svg", args.svg, "<svg xmlns=", "picture")
        check_file(args.svg)


def _names(flag: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"{flag} is empty; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UsageError(f"{flag} {name!r} is unknown; known: {', '.join(known)}")
    return names


def _roofline(args: argparse.Namespace) -> Roofline:
    from kdaprof.analysis.roofline import BASES, bases_of, roof, serial_of
    from kdaprof.analysis.roofline_document import Roofline
    from kdaprof.analysis.roofline_measured import stand
    from kdaprof.kda.cost import OpSize
    from kdaprof.runs.cells import PEER_PATHS, PHASES

    known = ("fused", "tensor", "tensor-rows", "compiled", *PEER_PATHS)
    wanted = None if args.paths is None else _names("--paths", args.paths, known)
    phases, names = _names("--phases", args.phases, PHASES), _names("--bytes", args.bytes, BASES)
    shape, dtype, calls, run_id, card = _subject(args)
    paths = wanted or tuple(dict.fromkeys(path for path, _ in calls if path in known)) or _PATHS
    size = OpSize.of(shape)
    bases = bases_of(size, dtype, paths=paths, phases=phases, names=names)
    ceilings = _with_declared(args, card.ceilings, {basis.rate for basis in bases})
    serial = serial_of(size, args.sms or card.sms, args.v_block)
    lacking = None if ceilings else card.missing
    rows = [roof(basis, ceilings, serial, why_none=lacking) for basis in bases]
    return Roofline(
        shape=shape,
        dtype=dtype,
        paths=paths,
        stood=stand(rows, calls, run_id),
        serial=serial,
        ceilings=ceilings,
        ceilings_missing=lacking,
        card=card.name,
        run=run_id,
    )


_Subject = tuple["Shape", str, "dict[tuple[str, str], Call]", "str | None", _Card]


def _subject(args: argparse.Namespace) -> _Subject:
    """What is spoken of: shape, dtype, measured calls, run and card."""
    from kdaprof.runs.cells import SHAPE_AXES, make_shape, parse_shape

    wanted = None
    if args.shape is not None or args.run is None:
        sizes = parse_shape(args.shape or _SHAPE, SHAPE_AXES["kda"][:-1])
        wanted = make_shape("kda", (*sizes, args.chunk or _CHUNK))
    if args.run is None:
        assert wanted is not None
        return wanted, args.dtype or "float32", {}, None, _card_here(args)

    from kdaprof.analysis.roofline_measured import measured_calls, measured_size
    from kdaprof.cli.standing import load_standing
    from kdaprof.runs.store import read_run

    # Refused before everything is derived, which takes seconds.
    shape, dtype = measured_size(read_run(args.run).record, wanted, args.dtype, args.chunk)
    raw, results = load_standing(args.run, store_of(args))
    gpu = raw.record.environment.gpu
    card = _Card(
        ceilings=raw.record.ceilings,
        sms=gpu.sm_count if gpu else None,
        name=gpu.name if gpu else None,
        missing=f"run {raw.record.run} measured none: {raw.record.environment.gpu_missing or 'it has no GPU'}",
    )
    return shape, dtype, measured_calls(raw.record, results, shape, dtype), raw.record.run, card


def _card_here(args: argparse.Namespace) -> _Card:
    """Measure what was not declared, where there is a card. Errors: CardInUseError while another run measures on it."""
    if args.no_measure:
        return _Card(missing="--no-measure was given; declare them: --bandwidth B/s --rate FLOP/s")
    if args.bandwidth is not None and args.rate is not None:
        return _Card()
    declare = "declare them (--bandwidth B/s --rate FLOP/s) or take a run's (--run RUN)"
    try:
        import torch
    except ImportError as error:
        return _Card(missing=f"torch cannot be imported ({error}); {declare}")
    if not torch.cuda.is_available():
        return _Card(missing=f"no CUDA device here to measure them on; {declare}")

    from kdaprof.cli.alone import alone_on, card_of
    from kdaprof.instruments.clock import MonotonicClock
    from kdaprof.instruments.cuda_device import open_device
    from kdaprof.probe.ceilings import measure_ceilings
    from kdaprof.probe.launch_costs import measure_launch_costs

    device, clock = open_device(), MonotonicClock()
    with alone_on(card_of(device), command="kdaprof roofline", wait_s=args.wait):
        ceilings = (*measure_ceilings(device, clock), *measure_launch_costs(device, clock))
    traits = device.traits
    return _Card(ceilings=ceilings, sms=traits.sm_count if traits else None, name=traits.name if traits else None)


def _with_declared(args: argparse.Namespace, ceilings: Sequence[Ceiling], rates: set[str]) -> tuple[Ceiling, ...]:
    """The ceilings with what was declared in place of what was measured."""
    from kdaprof.analysis.floor import COPY
    from kdaprof.runs.record import Ceiling

    declared = []
    if args.bandwidth is not None:
        declared.append(
            Ceiling(name=COPY, value=args.bandwidth, unit="B/s", provenance="declared", detail="--bandwidth")
        )
    if args.rate is not None:
        declared += [
            Ceiling(name=name, value=args.rate, unit="FLOP/s", provenance="declared", detail="--rate")
            for name in sorted(rates)
        ]
    names = {ceiling.name for ceiling in declared}
    return (*declared, *(ceiling for ceiling in ceilings if ceiling.name not in names))


def _draw(path: Path, roofline: Roofline) -> None:
    from kdaprof.cli.console import err_console
    from kdaprof.report.roofline_picture import roofline_picture
    from kdaprof.runs.atomic import write_text

    picture = roofline_picture(roofline)
    if picture is None:
        why = roofline.ceilings_missing or "no floor is known"
        older = f"; {path} is still the picture of before" if path.exists() else ""
        err_console().print(f"kdaprof: no picture: {why}{older}", soft_wrap=True)
        return
    write_text(path, picture)
