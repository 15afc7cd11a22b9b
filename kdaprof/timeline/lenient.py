"""A tolerant JSON reader for what profilers really write.

Accepts, beyond JSON: single-quoted strings, unquoted keys, raw control characters, backslashes that start no
escape (Windows paths), trailing commas, NaN, Infinity, None, True, False, and text that ends too early. It is
slow and is asked only for what the strict decoders refuse.
"""

from __future__ import annotations

import re
from typing import Any

_SPACE = re.compile(r"[\s\ufeff]*")
_WORD = re.compile(r"[A-Za-z_$][\w$ .#-]*")
_LITERAL = re.compile(r"[-+]?([A-Za-z]+)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WORDS: dict[str, object] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
    "nan": None, "NaN": None, "Infinity": None, "inf": None, "undefined": None,
}  # fmt: skip
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_MAX_DEPTH = 200


class LenientError(ValueError):
    """Not readable even by the tolerant rules; `offset` is the character where it went wrong."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class TruncatedError(LenientError):
    """The text ended inside a value; `partial` holds what was complete until then."""

    def __init__(self, offset: int, partial: object) -> None:
        super().__init__("ends too early", offset)
        self.partial = partial


def parse(text: str, start: int = 0) -> tuple[Any, int]:
    """The value at `start` and the offset behind it. Raises `LenientError`, `TruncatedError`."""
    return _value(text, _skip(text, start), 0)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if at >= len(text):
        raise TruncatedError(at, None)
    if depth > _MAX_DEPTH:
        raise LenientError("nested too deeply", at)
    first = text[at]
    if first == "{":
        return _object(text, at + 1, depth + 1)
    if first == "[":
        return _array(text, at + 1, depth + 1)
    if first in "\"'":
        return _string(text, at)
    number = _NUMBER.match(text, at)
    if number:
        literal = number.group()
        try:
            return (int(literal) if literal.lstrip("+-").isdigit() else float(literal)), number.end()
        except ValueError:  # an integer of more digits than Python converts
            return None, number.end()
    word = _LITERAL.match(text, at)
    if word and word.group(1) in _WORDS:
        return _WORDS[word.group(1)], word.end()
    raise LenientError(f"unexpected {first!r}", at)


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while True:
        at = _skip(text, at)
        if at >= len(text):
            raise TruncatedError(at, found)
        if text[at] == "}":
            return found, at + 1
        if text[at] == ",":
            at += 1
            continue
        key: str | None = None
        try:
            key, at = _key(text, at)
            at = _skip(text, at)
            if at < len(text) and text[at] != ":":
                raise LenientError("expected ':'", at)
            found[key], at = _value(text, _skip(text, at + 1), depth)
        except TruncatedError as error:
            if key is not None and isinstance(error.partial, (dict, list)):
                found[key] = error.partial
            raise TruncatedError(error.offset, found) from None


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while True:
        at = _skip(text, at)
        if at >= len(text):
            raise TruncatedError(at, found)
        if text[at] == "]":
            return found, at + 1
        if text[at] == ",":
            at += 1
            continue
        try:
            value, at = _value(text, at, depth)
        except TruncatedError as error:
            raise TruncatedError(error.offset, found) from None  # a half element is no element
        found.append(value)


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at] in "\"'":
        return _string(text, at)
    word = _WORD.match(text, at)
    if word is None:
        raise LenientError(f"expected a key, found {text[at]!r}", at)
    return word.group().rstrip(), word.end()


def _string(text: str, at: int) -> tuple[str, int]:
    quote = text[at]
    parts: list[str] = []
    begin = at = at + 1
    while True:
        close, slash = text.find(quote, at), text.find("\\", at)
        if close < 0:
            raise TruncatedError(len(text), None)
        if slash < 0 or close < slash:
            parts.append(text[begin:close])
            return "".join(parts), close + 1
        parts.append(text[begin:slash])
        following = text[slash + 1 : slash + 2]
        code = _HEX4.match(text, slash + 2) if following == "u" else None
        if code:
            parts.append(chr(int(code.group(), 16)))
            at = slash + 6
        elif following in _ESCAPES and following:
            parts.append(_ESCAPES[following])
            at = slash + 2
        else:
            parts.append("\\")  # a backslash that starts no escape stands for itself
            at = slash + 1
        begin = at
