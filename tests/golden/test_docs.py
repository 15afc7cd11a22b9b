"""The documentation against the code: its commands run, its links lead somewhere, its rules and findings are there.

A page is followed from top to bottom in a directory of its own. Python blocks run, or are saved where the text says
"Save this as"; commands run in this process, at small sizes (`TINY`). A block whose info string says `gpu` needs one:
of its commands only the flags are parsed, of its Python only the syntax.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pages import PAGES, ROOT, Block, Command, Page, commands, read_page

from kdaprof.analysis.guards import RULES, PendingRule, Rule
from kdaprof.analysis.guards.registry import RETRACTED
from kdaprof.cli.main import VERBS, main

TINY = {
    "--shape": "1,16,1,16,16",
    "--samples": "1",
    "--rounds": "2",
    "--util-seconds": "0",
}
"""What every probe of a page is given that does not say it itself: it shall work, and need not measure well here."""

INSTEAD = {
    "kdaprof probe --paths fused,tensor --phases fwd,fwdbwd --out runs/first": (
        "kdaprof probe --paths fused,tensor --phases fwd --out runs/first"  # the interpreter's backward takes long
    ),
}
"""Commands that are run differently from how they stand. Beside these, `python FILE` runs in this process."""

ONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""What torchrun tells a rank: its script runs here, as the only one (tests/unit/steps/test_loop_ranks.py has two)."""

NOT_RUN = {
    "make probe": "it makes a virtual environment; that the target exists is checked",
    "source .venv/bin/activate": "it changes the shell",
}

ONLY_COMPILED = {
    "README.md": "a call on tensors of the reader; docs/op.md has it with tensors, and runs",
    "docs/lightning.md": "Lightning is no dependency",
}

LEAVE_OUT = ("Trainer(",)
"""Python that holds one of these continues a program of the reader: it is compiled only."""


def _repository(folder: Path) -> None:
    """Two branches of a module `mine`, as a reader of the recipe has them."""

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("config", "user.email", "reader@example.org")
    git("config", "user.name", "Reader")
    for branch, turns in (("main", 20_000), ("my-branch", 10_000)):
        if branch != "main":
            git("switch", "-q", "-c", branch)
        (folder / "mine.py").write_text(f"def step(shape: str) -> int:\n    return sum(range({turns}))\n")
        git("add", "mine.py")
        git("commit", "-q", "-m", f"The step on {branch}")
    git("switch", "-q", "main")


def _train(folder: Path) -> None:
    (folder / "train.py").write_text("print('trained')\n")


BEFORE: dict[str, Callable[[Path], None]] = {
    "docs/recipes/own-loop.md": _train,
    "docs/recipes/two-branches.md": _repository,
}
"""What a reader of the page has already."""


@cache
def page_of(path: Path) -> Page:
    return read_page(path)


def _ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*PAGES, *(ROOT / name / "README.md" for name in ("probes", "reports"))], ids=_ids)
def test_every_link_and_anchor_leads_somewhere(path: Path) -> None:
    dead = []
    for link in page_of(path).links:
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        aim = (path.parent / target).resolve() if target else path
        known = page_of(aim).anchors if anchor and aim.suffix == ".md" and aim.exists() else frozenset()
        if not aim.exists() or (anchor and anchor not in known):
            dead.append(link)
    assert dead == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in page_of(index).links}
    assert [path for path in PAGES[1:] if path != index and path not in listed] == []


def test_the_readme_names_every_verb() -> None:
    text = (ROOT / "README.md").read_text()
    assert [verb for verb in VERBS if f"kdaprof {verb}" not in text and f"`{verb}`" not in text] == []


@pytest.mark.parametrize("path", PAGES, ids=_ids)
def test_the_commands_in_the_text_have_these_flags(path: Path) -> None:
    for span in page_of(path).spans:
        if span.startswith("python ") and "/" in span:
            assert (ROOT / span.split()[1]).exists(), span
        words = (
            Command(span.partition(" > ")[0], frozenset(), "").words if span.startswith((".venv/bin/k", "kd")) else []
        )
        if len(words) > 1 and words[0] == "kdaprof" and words[1] != "VERB" and "…" not in words:
            assert words[1] in VERBS, span
            if len(words) > 2:
                _parse(words[1:])


@pytest.fixture
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small operations only wait for each other's threads. And no page's modules are left to the next one."""
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads, modules = torch.get_num_threads(), set(sys.modules)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(Path.cwd())):
            del sys.modules[name]


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("path", PAGES, ids=_ids)
def test_a_page_can_be_followed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_of(path)
    for name in ("reports", "probes", "Makefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("RANK", "WORLD_SIZE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    BEFORE.get(page.name, lambda _: None)(tmp_path)
    for block in page.blocks:
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            _follow_python(page, block, where)
        elif block.saved_as is not None:
            (tmp_path / block.saved_as).write_text(block.text)
        elif block.is_shell:
            for command in commands(block):
                _follow(command, block, where, capsys)


def _follow_python(page: Page, block: Block, where: str) -> None:
    code = compile(block.text, where, "exec")
    if block.saved_as is not None:
        saved = Path(block.saved_as)
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(block.text)
    elif not (block.gpu or page.name in ONLY_COMPILED or any(word in block.text for word in LEAVE_OUT)):
        with _quiet():
            exec(code, {"__name__": "__main__"})


def _follow(command: Command, block: Block, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    if command.text in NOT_RUN:
        words = command.words
        assert words[0] != "make" or f"\n{words[1]}: " in Path("Makefile").read_text(), where
        return
    if block.gpu:
        if command.words[0] == "kdaprof":
            _parse(command.words[1:])
        return
    words = Command(INSTEAD.get(command.text, command.text), command.exits, "").words
    capsys.readouterr()
    code, out, err = _read(tuple(words), capsys) if _only_reads(words) else _run(words, capsys)
    assert code in command.exits, f"{where}: {command.text}: exit {code}\n{out[-500:]}{err[-500:]}"
    parts = _lines(f"\n{command.shown}\n").split("\n…\n")
    assert [part for part in parts if part.strip("\n") not in _lines(out)] == [], where


_READ: dict[tuple[str, ...], tuple[int, str, str]] = {}


def _only_reads(words: list[str]) -> bool:
    """Whether the command shows a run of reports/ and leaves nothing behind: once is enough for all pages."""
    shows = words[1] in {"report", "compare", "cite", "analyze"} if words[0] == "kdaprof" else False
    return shows and any("reports/" in word for word in words) and not {"--html", "--out", "--write"} & set(words)


def _read(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    if words not in _READ:
        _READ[words] = _run([*words], capsys)
    return _READ[words]


def _run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with _quiet():
        if words[0] == "kdaprof":
            code = main(_tiny(words[1:]))
        elif words[0] in {"python", "torchrun"}:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in ONE_RANK.items() if words[0] == "torchrun" else ():
                    patch.setenv(name, value)
                runpy.run_path(words[-1], run_name="__main__")
            code = 0
        else:
            code = subprocess.run(words, check=False, timeout=60).returncode
    return code, *capsys.readouterr()


def _tiny(argv: list[str]) -> list[str]:
    if argv[0] != "probe":
        return argv
    given = {word for word in argv if word.startswith("--")}
    more = {flag: value for flag, value in TINY.items() if flag not in given}
    if given & {"--target", "--workload"}:
        more.pop("--shape", None)
    return [*argv, *(word for pair in more.items() for word in pair)]


def _lines(text: str) -> str:
    """Without blanks at the ends of lines, which no page shows."""
    return "\n".join(line.rstrip() for line in text.split("\n"))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What a page runs may warn, as it does for its reader: no GPU here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _parse(argv: list[str]) -> None:
    """Let the verb's own parser take the flags; what follows `--` is somebody else's command."""
    verb, *rest = argv
    if "--help" in rest:
        return
    own = rest[: rest.index("--")] if "--" in rest else rest
    importlib.import_module(VERBS[verb].module).build_parser().parse_args(own)


@pytest.mark.parametrize("name", ["reading-a-split.md", "recipes/graph.md"])
def test_the_figures_in_the_text_are_those_of_the_stored_run(name: str) -> None:
    page = page_of(ROOT / "docs" / name)
    text = page.path.read_text()
    for block in page.blocks:
        text = text.replace(block.text, "")
    told = set(re.findall(r"\d+\.\d+", text))
    known = set(re.findall(r"\d+\.\d+", (ROOT / "reports" / "h200-kda" / "report.md").read_text()))
    assert len(told) >= 3
    assert told - known == set()


def test_rules_are_those_of_the_code_each_with_its_title_at_its_anchor() -> None:
    page = page_of(ROOT / "docs" / "rules.md")
    told = [text for level, text in page.headings if level == 2]
    code: dict[str, Rule | PendingRule] = {**{rule.id: rule for rule in RULES}, RETRACTED.id.capitalize(): RETRACTED}
    assert told == list(code)
    assert {rule.anchor for rule in code.values()} <= page.anchors
    sections = dict(zip(told, page.path.read_text().split("\n## ")[1:], strict=True))
    missing = [name for name, rule in code.items() if f"**{rule.title.capitalize()}.**" not in sections[name]]
    assert missing == []


def test_findings_are_those_that_the_code_makes() -> None:
    told = [text for level, text in page_of(ROOT / "docs" / "findings.md").headings if level == 3]
    assert len(told) == len(set(told))
    assert sorted(told) == sorted(_findings_of_the_code())


def _findings_of_the_code() -> set[str]:
    """The id of every `Finding(…)` in the package, through conditional expressions and constants."""
    found: set[str] = set()
    for path in (ROOT / "kdaprof").rglob("*.py"):
        if "Finding(" not in path.read_text():
            continue
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                (given,) = [keyword.value for keyword in node.keywords if keyword.arg == "id"]
                found |= _texts(given, constants)
    return found


def _texts(node: ast.expr, constants: dict[str, ast.expr]) -> set[str]:
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=one, orelse=other):
            return _texts(one, constants) | _texts(other, constants)
        case ast.Name(id=name):
            return _texts(constants[name], constants)
    pytest.fail(f"the id of a finding cannot be read from {ast.unparse(node)}")
