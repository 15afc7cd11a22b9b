"""`kdaprof ab`: is the candidate faster, under a contract that was written before?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kdaprof.cli.parser import VerbParser, check_wait
from kdaprof.cli.standing import add_store_flag, store_of
from kdaprof.errors import Exit, UsageError

if TYPE_CHECKING:
    from kdaprof.analysis.ab.contract import Contract
    from kdaprof.analysis.ab.result import Result

EXAMPLES = """\
examples:
  kdaprof ab --example > contract.toml
      a contract that works as it stands, with every key explained
  kdaprof ab contract.toml
      check what is frozen, measure base and candidate interleaved, judge each gate, decide
  kdaprof ab contract.toml --base main --cand my-branch --out runs/ab-my-branch
      two revisions of a repository (kind "revisions"), each in a worktree and processes of its own
  kdaprof ab contract.toml --judge runs/ab-my-branch --json
      judge stored evidence again, and measure nothing; one document (schema kdaprof.ab/1)

DIR holds contract.toml, evidence.json (every sample), ab.json, report.md and logs/. Attempts are counted in the
store, one file each; the contract may not change between them.

exit codes: 0 GO · 3 NO-GO: a gate or the contract failed · 4 not established · 1 a side could not be measured,
2 usage · 5 the device is not there, or another run measures on it · 130 interrupted"""


def build_parser() -> argparse.ArgumentParser:
    """The flags of `ab`."""
    parser = VerbParser(
        "ab",
        description="An experiment under a contract: a frozen correctness check, interleaved rounds of base and "
        "candidate (A B B A), gates, and a decision: GO, NO-GO, or not established.",
        epilog=EXAMPLES,
    )
    parser.add_argument("contract", nargs="?", type=Path, metavar="CONTRACT", help="the contract's TOML file")
    parser.add_argument("--base", metavar="X", help="a path, target or revision, as the contract's kind says")
    parser.add_argument("--cand", metavar="X", help="the same for the candidate")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="judge stored evidence (a DIR or its evidence.json)")
    parser.add_argument("--example", action="store_true", help="print a contract that works, and exit")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go (default runs/<UTC>-ab-<name>)")
    parser.add_argument("--force", action="store_true", help="replace an experiment that is already in DIR")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="for a card that another run measures on")
    parser.add_argument("--json", action="store_true", help="print the document, alone on stdout")
    add_store_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run or judge one experiment; returns the exit code that its decision has."""
    args = build_parser().parse_args(argv)
    if args.example:
        from kdaprof.cli.ab_example import EXAMPLE
        from kdaprof.cli.console import print_file

        print_file(EXAMPLE.encode())
        return Exit.OK
    check_wait(args.wait)
    if args.contract is None:
        raise UsageError("ab needs a CONTRACT; `kdaprof ab --example > contract.toml` makes one")
    from kdaprof.analysis.ab.reading import read_contract

    contract = read_contract(args.contract)
    base, cand = _side(args.base, contract.base, "base"), _side(args.cand, contract.cand, "cand")
    command = ("kdaprof", "ab", *argv)
    if args.judge is not None:
        result = _judged(contract, args.contract.parent, args.judge, base, cand)
    else:
        from kdaprof.cli.ab_run import measured

        result = measured(
            contract,
            args.contract,
            (base, cand),
            args.out,
            store_of(args),
            command,
            force=args.force,
            wait_s=args.wait,
        )
    _print(result, command, as_json=args.json)
    return exit_code(result)


def exit_code(result: Result) -> Exit:
    """130 interrupted; 1 a side failed, unless the contract already had; else what the decision says."""
    decision = result.outcome.decision
    if not result.complete:
        return Exit.INTERRUPTED
    if result.errors and decision != "no-go":
        return Exit.ERROR
    return {"go": Exit.OK, "no-go": Exit.REGRESSION, "not-established": Exit.INCONCLUSIVE}[decision]


def _side(flag: str | None, stated: str | None, name: str) -> str:
    found = stated if flag is None else flag
    if not found:
        raise UsageError(f"--{name}: name it here or in the contract ({name} = …)")
    return found


def _judged(contract: Contract, folder: Path, path: Path, base: str, cand: str) -> Result:
    from kdaprof.analysis.ab.contract import StageShare
    from kdaprof.analysis.ab.judge import judge
    from kdaprof.analysis.ab.reading import digest
    from kdaprof.analysis.ab.result import Party, Result
    from kdaprof.analysis.ab.stages import judge_stage_share
    from kdaprof.analysis.ab.stored import read_evidence
    from kdaprof.analysis.recompute import recompute

    evidence = read_evidence(path)
    before = [judge_stage_share(g, folder, recompute) for g in contract.gates if isinstance(g, StageShare)]
    return Result(
        contract=contract,
        digest=digest(contract),
        base=Party(name=base),
        cand=Party(name=cand),
        outcome=judge(contract, evidence, before),
        complete=True,
        source=evidence.source or str(path),
        errors=evidence.errors,
    )


def _print(result: Result, command: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        from kdaprof.analysis.ab.document import ab_document
        from kdaprof.cli.console import print_json

        print_json(ab_document(result, command=command))
        return
    from kdaprof.cli.console import out_console
    from kdaprof.report.ab import show_experiment

    show_experiment(out_console(), result)
