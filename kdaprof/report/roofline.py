"""A roofline on a terminal: the ceilings and where they are from, then a table a byte basis."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kdaprof.analysis.roofline import COMPULSORY, FIELD, Basis
from kdaprof.analysis.roofline_document import Roofline, used_ceilings
from kdaprof.analysis.roofline_measured import Stood, beaten
from kdaprof.report.tables import DASH
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, Reason
from kdaprof.runs.units import format_bytes, format_flop, format_fraction, format_ns, format_number, format_value

_SAYS = {
    COMPULSORY: "compulsory: inputs and outputs once, what the op must move",
    "path": "path: every tensor that this way of computing writes and reads back",
    FIELD: "field-report: that report's own listing, one way, times 2",
}


def show_roofline(console: Console, roofline: Roofline, *, tensors: bool) -> None:
    """Print the ceilings, the table, the chain, what is missing and why, and what beats its floor."""
    _line(console, f"Roofline of kda {_extents(roofline)} {roofline.dtype}", "bold")
    beside = " · ".join(part for part in (roofline.card, f"run {roofline.run}" if roofline.run else None) if part)
    if beside:
        _line(console, beside, "dim")
    for ceiling in used_ceilings(roofline):
        origin = ceiling.provenance + (f": {ceiling.detail}" if ceiling.detail else "")
        _line(console, f"  {ceiling.name:<16} {format_value(ceiling.value, ceiling.unit)}  ({origin})", "")
    if roofline.ceilings_missing:
        _line(console, f"  no ceilings: {roofline.ceilings_missing}", "")
    for name in dict.fromkeys(one.row.basis.name for one in roofline.stood):
        console.print()
        _line(console, _SAYS[name], "bold")
        console.print(_rows([one for one in roofline.stood if one.row.basis.name == name]))
    for text in _missing(roofline.stood):
        _line(console, text, "dim")
    for ran in roofline.stood:
        if ran.bytes_when_run is not None:
            name = f"{ran.row.basis.path} {ran.row.basis.phase}"
            then = format_bytes(ran.bytes_when_run)
            _line(console, f"{name}: when it ran its list had {then}; the kernels or the list have changed", "yellow")
    console.print()
    _line(console, _chain(roofline), "")
    for text in _chain_times(roofline.stood):
        _line(console, text, "dim")
    for finding in beaten(roofline.stood):
        _line(console, f"{finding.text} (Q10) → {finding.next}", "yellow")
    rules = sorted({reason.rule + ": " + reason.text for reason in _reasons(roofline.stood) if reason.rule == "Q11"})
    for rule in rules:
        _line(console, f"(…) {rule}", "dim")
    if tensors:
        for one in _listed(roofline.stood):
            console.print()
            _line(console, _heading(one), "bold")
            console.print(_tensors(one))


def _rows(stood: Sequence[Stood]) -> Table:
    measured = any(one.call for one in stood)
    columns = ("FLOP", "bytes", "FLOP/B", "floor", "bound", *(("busy", "wall", "floor/busy") if measured else ()))
    table = _table("path", *columns)
    for one in stood:
        row, basis = one.row, one.row.basis
        table.add_row(
            basis.phase if basis.path == FIELD else f"{basis.path} {basis.phase}",
            format_flop(basis.flops),
            DASH if basis.bytes is None else format_bytes(basis.bytes),
            DASH if basis.intensity is None else format_number(basis.intensity),
            _ns(row.floor),
            row.bound or DASH,
            *(
                (_ns(one.call.busy if one.call else None), _ns(one.call.wall if one.call else None), _share(one.share))
                if measured
                else ()
            ),
        )
    return table


def _heading(basis: Basis) -> str:
    where = "" if basis.path == FIELD or basis.name == COMPULSORY else f" of {basis.path}"
    times = f", the sum times {basis.times}" if basis.times != 1 else ""
    return f"{basis.name} bytes{where}, {basis.phase}: {format_bytes(basis.bytes or 0)} = {basis.bytes} B{times}"


def _tensors(basis: Basis) -> Table:
    table = _table("tensor", "shape", "dtype", "reads", "writes", "bytes moved")
    for tensor in basis.tensors or ():
        shape = "×".join(map(str, tensor.shape))
        table.add_row(
            tensor.name, shape, tensor.dtype, str(tensor.reads), str(tensor.writes), f"{tensor.moved_bytes:,}"
        )
    return table


def _listed(stood: Sequence[Stood]) -> list[Basis]:
    kept: dict[tuple[str, str, str], Basis] = {}
    for one in stood:
        basis = one.row.basis
        if basis.tensors is not None:
            kept.setdefault((basis.name, "" if basis.name == COMPULSORY else basis.path, basis.phase), basis)
    return list(kept.values())


def _missing(stood: Sequence[Stood]) -> list[str]:
    texts: dict[str, list[str]] = {}
    for one in stood:
        basis = one.row.basis
        if basis.tensors is None:
            texts.setdefault(basis.why or "", []).append(f"{basis.path} {basis.phase}")
    return [f"{DASH} {', '.join(dict.fromkeys(names))}: {why}" for why, names in texts.items()]


def _chain(roofline: Roofline) -> str:
    serial = roofline.serial
    programs = f"{serial.chain.programs} program{'' if serial.chain.programs == 1 else 's'}"
    text = (
        f"Serial chain: {programs}, each {serial.chain.steps} dependent chunk{'' if serial.chain.steps == 1 else 's'}"
    )
    if serial.sms is None or serial.busy_share is None:
        return f"{text}; the number of multiprocessors is not known (--sms N)"
    waves = f"{serial.waves} on the fullest" if serial.waves and serial.waves > 1 else "at most one on each"
    return f"{text}, on {serial.sms} multiprocessors: {format_fraction(serial.busy_share)} of them busy, {waves}"


def _chain_times(stood: Sequence[Stood]) -> list[str]:
    """The chain's own bound, a line a rate: paths of one rate share it."""
    least = {one.row.basis.rate: one.row.serial for one in stood if one.row.serial.value is not None}
    return [f"  at least {_ns(fact)} forward at {rate}, whatever the floor says" for rate, fact in least.items()]


def _reasons(stood: Sequence[Stood]) -> list[Reason]:
    return [reason for one in stood for reason in (*one.row.floor.reasons, *one.row.serial.reasons)]


def _extents(roofline: Roofline) -> str:
    return CellKey("kda", "", "", "", "", roofline.shape, roofline.dtype).extents


def _ns(fact: Fact | None) -> str:
    if fact is None or fact.value is None:
        return DASH
    text = format_ns(fact.value)
    return text if fact.quotable else f"({text})"


def _share(fact: Fact) -> str:
    if fact.value is None:
        return DASH
    text = format_fraction(fact.value)
    return text if fact.quotable else f"({text}) {','.join(sorted({r.rule for r in fact.reasons}))}"


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table
