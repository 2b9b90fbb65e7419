"""What may be said in `.option(…)`, read once and refused in plain words if it makes no sense."""

from __future__ import annotations

import os
from collections.abc import Mapping

from syncline.core.errors import UsageError
from syncline.networks.node_client import NodeClient

TOKEN_VARIABLE = "SYNCLINE_API_TOKEN"  # noqa: S105 - the name of a variable, not what is in it


def addresses(options: Mapping[str, str], *, several: bool) -> list[str]:
    """The nodes' addresses: `node`, or `nodes` with commas between them."""
    given = options.get("nodes") or options.get("node") or ""
    found = [text.strip().rstrip("/") for text in given.split(",") if text.strip()]
    if not found:
        raise UsageError("no node is named", hint='say .option("nodes", "http://127.0.0.1:7070")')
    if len(set(found)) != len(found):
        raise UsageError("a node is named twice", about=given)
    if len(found) > 1 and not several:
        raise UsageError("one node publishes", hint="name a single node", about=given)
    return found


def client(address: str, options: Mapping[str, str]) -> NodeClient:
    """A client of one node, with the token of the options or, better, of the environment."""
    return NodeClient(address, options.get("token") or os.environ.get(TOKEN_VARIABLE, ""))


def choice(options: Mapping[str, str], name: str, *allowed: str) -> str:
    """One of the allowed words; the first if nothing was said."""
    found = options.get(name, allowed[0]).lower()
    if found not in allowed:
        raise UsageError(f"{name} is one of {', '.join(allowed)}, not {found!r}")
    return found


def number(options: Mapping[str, str], name: str, default: float, least: float) -> float:
    text = options.get(name)
    try:
        found = default if text is None else float(text)
    except ValueError:
        raise UsageError(f"{name} must be a number, not {text!r}") from None
    if not found >= least:
        raise UsageError(f"{name} must be at least {least:g}")
    return found
