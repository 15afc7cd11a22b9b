"""What a Markdown page holds that can be checked: fenced blocks, commands with what they print, links, anchors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_SHELLS = {"bash", "sh", "console"}
_SAVED_AS = re.compile(r"Save\s+this\s+as\s+`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `gpu` when its info string says so, `saved_as` when the text before names a file."""

    language: str
    gpu: bool
    text: str
    line: int
    saved_as: str | None

    @property
    def is_shell(self) -> bool:
        return self.language in _SHELLS


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it stands in a page, the exit codes that its comment allows, and the output shown below it."""

    text: str
    exits: frozenset[int]
    shown: str

    @property
    def words(self) -> list[str]:
        words = shlex.split(self.text)
        return [words[0].removeprefix(".venv/bin/"), *words[1:]] if words else words


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    blocks: tuple[Block, ...]
    links: tuple[str, ...]
    spans: tuple[str, ...]
    """Inline code."""
    headings: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def anchors(self) -> frozenset[str]:
        """As GitHub makes them: the second of two like headings ends in -1."""
        seen: dict[str, int] = {}
        made = []
        for _, text in self.headings:
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            made.append(f"{slug}-{seen[slug]}" if slug in seen else slug)
            seen[slug] = seen.get(slug, 0) + 1
        return frozenset(made)


def read_page(path: Path) -> Page:
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text())
    blocks, links, spans, headings, before = [], [], [], [], ""
    for place, token in enumerate(tokens):
        if token.type == "inline":
            inner = token.children or []
            links += [str(link) for child in inner if (link := child.attrs.get("href") or child.attrs.get("src"))]
            spans += [child.content for child in inner if child.type == "code_inline"]
            opener = tokens[place - 1]
            if opener.type == "heading_open":
                headings.append(
                    (int(opener.tag[1]), "".join(c.content for c in inner if c.type in {"text", "code_inline"}))
                )
            before = token.content
        elif token.type == "fence":
            blocks.append(_block(token, before))
            before = ""
    return Page(path, tuple(blocks), tuple(links), tuple(spans), tuple(headings))


def _block(token: Token, before: str) -> Block:
    language, *words = token.info.split() or [""]
    saved = _SAVED_AS.search(before)
    line = token.map[0] + 1 if token.map else 0
    return Block(language, "gpu" in words, token.content, line, saved.group(1) if saved else None)


def commands(block: Block) -> Iterator[Command]:
    """In `console` blocks what follows a `$`, with its output; in the others every line."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language != "console":
        yield from (_command(line, "") for line in lines if line.strip() and not line.startswith("#"))
        return
    starts = [place for place, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _command(lines[start][2:], "\n".join(lines[start + 1 : end]))


def _command(line: str, shown: str) -> Command:
    text, _, comment = line.partition(" # ")
    exits = re.findall(r"\d+", comment) if comment.strip().startswith("exit") else ["0"]
    return Command(text.strip(), frozenset(map(int, exits)), shown)
