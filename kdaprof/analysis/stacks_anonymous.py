"""py-spy's trace without what says whose machine it was: files keep the part that names a package, no more."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

import msgspec

from kdaprof.runs.environment import Secrets, scrub_text

Json = Any  # a foreign format, handed on as it came
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/(.+)")
_LIBRARY = re.compile(r".*/(lib/python3[\d.]*/.+)")


def anonymous_trace(trace: bytes, secrets: Secrets) -> bytes:
    """The same trace with files as `anonymous_file` gives them, and names without host, user and paths.

    What is no trace is handed back as it is: nobody will read it.
    """
    try:
        events: Json = msgspec.json.decode(trace)
        for event in events:
            event["name"] = scrub_text(event["name"], secrets)
            args = event.get("args", {})
            if args.get("filename"):
                args["filename"] = anonymous_file(args["filename"])
    except (msgspec.DecodeError, TypeError, KeyError, AttributeError):
        return trace
    return msgspec.json.encode(events)


def anonymous_file(file: str) -> str:
    """`torch/_tensor.py` of an installed package, `lib/python3.12/queue.py` of Python's own, else the name alone.

    The layers are told by these parts. A name alone keeps `…/` before it.
    """
    found = _PACKAGE.match(file) or _LIBRARY.match(file)
    if found is not None:
        return found[1]
    return f"…/{PurePath(file).name}" if "/" in file or "\\" in file else file
