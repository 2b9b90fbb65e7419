"""`jp`: JSON Patch (RFC 6902). A delta is an array of operations, also accepted as JSON text; `{}` and `""` are empty.

A patch is applied whole or not at all. In place, what was done is undone after a failure; otherwise only the containers
on the way to a change are copied, so an object of any size changes in about the time it takes to find the spot.
Making patches is in differ.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from syncline.core import limits
from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget, measure
from syncline.protocols.sdsp.deltas.differ import difference
from syncline.protocols.sdsp.wire import ObjectKind


class JsonPatch:
    """RFC 6902, with exact numbers: 1 and true differ; 1 and 1.0 are the same to `test` and different to `make`."""

    code = "jp"
    kinds = frozenset({ObjectKind.JSON})

    def make(self, old: Any, new: Any) -> list[dict[str, Any]]:
        return difference(old, new)

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        operations = operations_in(delta)
        tree = _Tree(old, budget, in_place)
        try:
            for operation in operations:
                if not in_place or not tree.run_plain(operation):
                    tree.run(operation)
        except RecursionError:
            tree.undo()
            raise _too_deep() from None
        except DeltaError:
            tree.undo()
            raise
        return tree.root


def operations_in(delta: Any) -> list[Any]:
    """The operations of a patch in any of its forms."""
    if type(delta) is list and len(delta) <= limits.SDSP_PATCH_OPS:
        return delta
    if isinstance(delta, str):  # SDSP: its own example carries the patch as the text "{}"
        try:
            delta = msgspec.json.decode(delta) if delta.strip() else []
        except (msgspec.DecodeError, RecursionError):
            raise _malformed("the patch is text, but not JSON text") from None
    if delta == {}:
        return []
    if not isinstance(delta, list):
        raise _malformed("a patch is an array of operations")
    if len(delta) > limits.SDSP_PATCH_OPS:
        raise DeltaError(f"{len(delta)} operations in one patch", reason=Reason.TOO_COMPLEX)
    return delta


class _Tree:
    """A document while it is patched.

    In place, `_done` says how to take each change back. Otherwise a container is copied before its first change, and
    `_ours` knows the copies: whatever was there before, or came with the patch, is never touched.
    """

    __slots__ = ("_budget", "_done", "_ours", "root")

    def __init__(self, root: Any, budget: Budget, in_place: bool) -> None:
        self.root = root
        self._budget = budget
        self._ours: dict[int, Any] | None = None if in_place else {}  # by id; held here, so no id is given twice
        self._done: list[tuple[int, Any, Any, Any]] = []

    def undo(self) -> None:
        for how, container, key, value in reversed(self._done):
            if how == _SET:
                container[key] = value
            elif how == _INSERT:
                container.insert(key, value)
            elif how == _DELETE:
                del container[key]
            else:
                self.root = value

    def run_plain(self, operation: Any) -> bool:
        """Do what nearly every operation is, in place and without detours: put a number or text where one has been.

        False: it is something else, and nothing has been done. Folding millions of frames is half as fast without this.
        """
        try:
            if operation["op"] != "replace":
                return False
            value, path = operation["value"], operation["path"]
            if type(value) is dict or type(value) is list or "~" in path or path[0] != "/":
                return False
            container, tokens = self.root, path.split("/")
            last = tokens[-1]
            for token in tokens[1:-1]:
                container = container[token] if type(container) is dict else container[_index(token)]
            if type(container) is not dict or last not in container:
                return False
        except (KeyError, IndexError, TypeError, DeltaError):
            return False  # the thorough way will say what is wrong
        self._budget.grow(len(value) + 8 if type(value) is str else 8)
        self._done.append((_SET, container, last, container[last]))
        container[last] = value
        return True

    def run(self, operation: Any) -> None:
        """Do one operation."""
        if type(operation) is not dict:
            raise _malformed("an operation is an object")
        name, path = operation.get("op"), _pointer(operation, "path")
        if name == "replace":
            self._replace(path, self._value(operation, path))
        elif name == "add":
            self._add(path, self._value(operation, path))
        elif name == "remove":
            self._remove(path)
        elif name == "test":
            if "value" not in operation:
                raise _malformed("test without value")
            if not _equal(self._get(path), operation["value"], self._budget):
                raise DeltaError("a test in the patch fails", reason=Reason.INVALID_PAYLOAD, about=operation["path"])
        elif name == "move":
            self._move(_pointer(operation, "from"), path)
        elif name == "copy":
            value = self._get(_pointer(operation, "from"))
            self._charge(value, path)
            self._add(path, _copy(value))
        else:
            raise _malformed(f"there is no operation {str(name)[:20]!r}")

    def _add(self, path: list[str], value: Any) -> None:
        if not path:
            self._set_root(value)
            return
        container, token = self._parent(path), path[-1]
        if type(container) is dict:
            change = (
                (_SET, container, token, container[token]) if token in container else (_DELETE, container, token, 0)
            )
            self._done.append(change)
            container[token] = value
        elif type(container) is list:
            index = len(container) if token == _END else _index(token)
            if index > len(container):
                raise _missing(token)
            self._budget.toil((len(container) - index) >> 4)
            self._done.append((_DELETE, container, index, 0))
            container.insert(index, value)
        else:
            raise _missing(token)

    def _replace(self, path: list[str], value: Any) -> None:
        if not path:
            self._set_root(value)
            return
        container, key = self._place(path)
        self._done.append((_SET, container, key, container[key]))
        container[key] = value

    def _remove(self, path: list[str]) -> Any:
        if not path:
            raise _malformed("the whole document cannot be removed")
        container, key = self._place(path)
        value = container[key]
        if type(container) is list:
            self._budget.toil((len(container) - key) >> 4)
            self._done.append((_INSERT, container, key, value))
        else:
            self._done.append((_SET, container, key, value))
        del container[key]
        return value

    def _move(self, source: list[str], path: list[str]) -> None:
        value = self._get(source)
        if source == path:
            return
        if path[: len(source)] == source:  # RFC 6902: from must not be a proper prefix of path
            raise _malformed("a value cannot be moved into itself")
        if type(value) is dict or type(value) is list:
            _check_depth(measure(value, self._budget).depth, path)
        self._add(path, self._remove(source))

    def _set_root(self, value: Any) -> None:
        self._done.append((_ROOT, None, None, self.root))
        self.root = value

    def _get(self, path: list[str]) -> Any:
        node = self.root
        for token in path:
            node = node[_key(node, token)]
        return node

    def _place(self, path: list[str]) -> tuple[Any, Any]:
        """The container and key of something that is there."""
        container = self._parent(path)
        return container, _key(container, path[-1])

    def _parent(self, path: list[str]) -> Any:
        """The container that holds, or would hold, what `path` points at; ours to change."""
        ours = self._ours
        node = self.root
        if ours is None:
            for token in path[:-1]:
                node = node[token] if type(node) is dict and token in node else node[_key(node, token)]
            return node
        node = self.root = self._own(node)
        for token in path[:-1]:
            key = _key(node, token)
            child = node[key]
            if id(child) not in ours:
                child = node[key] = self._own(child)
            node = child
        return node

    def _own(self, node: Any) -> Any:
        assert self._ours is not None
        if (type(node) is not dict and type(node) is not list) or id(node) in self._ours:
            return node
        self._budget.toil(len(node) >> 4)
        copy = node.copy()
        self._ours[id(copy)] = copy
        return copy

    def _value(self, operation: dict[str, Any], path: list[str]) -> Any:
        if "value" not in operation:
            raise _malformed("an operation that needs a value has none")
        value = operation["value"]
        self._charge(value, path)
        return value

    def _charge(self, value: Any, path: list[str]) -> None:
        kind = type(value)
        size = 8 if not path else 8 + len(path[-1])
        if kind is str:
            size += len(value)
        elif kind is dict or kind is list:
            measured = measure(value, self._budget)
            _check_depth(measured.depth, path)
            size += measured.size
        self._budget.grow(size)


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    """The reference tokens of a JSON Pointer (RFC 6901)."""
    text = operation.get(name)
    if type(text) is not str:
        raise _malformed(f"{name} is missing or not text")
    if not text:
        return []
    tokens = text.split("/")
    if tokens.pop(0):
        raise _malformed(f"{name} does not start with /")
    if "~" in text:
        if _BAD_ESCAPE.search(text):
            raise _malformed(f"{name} has a ~ that is neither ~0 nor ~1")
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    return tokens


def _key(node: Any, token: str) -> Any:
    """What gives the child that `token` names, if there is one."""
    if type(node) is dict:
        if token in node:
            return token
    elif type(node) is list and (index := _index(token)) < len(node):
        return index
    raise _missing(token)


def _index(token: str) -> int:
    if _INDEX.fullmatch(token) is None:
        raise _missing(token)
    return int(token)


def _check_depth(depth: int, path: list[str]) -> None:
    if depth + len(path) > limits.SDSP_DEPTH_MAX:
        raise _too_deep()


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value


def _equal(one: Any, other: Any, budget: Budget) -> bool:
    """RFC 6902 4.6: numbers by value, text by code points, arrays in order, objects by member."""
    if type(one) is bool or type(other) is bool:
        return one is other
    if type(one) is list and type(other) is list:
        budget.toil(len(one))
        return len(one) == len(other) and all(_equal(a, b, budget) for a, b in zip(one, other, strict=True))
    if type(one) is dict and type(other) is dict:
        budget.toil(len(one))
        return one.keys() == other.keys() and all(_equal(value, other[key], budget) for key, value in one.items())
    return bool(one == other)


def _malformed(message: str) -> DeltaError:
    return DeltaError(message, reason=Reason.MALFORMED)


def _missing(token: str) -> DeltaError:
    return DeltaError(f"the patch points at {token[:40]!r}, which is not there", reason=Reason.INVALID_PAYLOAD)


def _too_deep() -> DeltaError:
    return DeltaError(f"nested more than {limits.SDSP_DEPTH_MAX} deep", reason=Reason.TOO_COMPLEX)


_SET, _INSERT, _DELETE, _ROOT = range(4)  # ways to take a change back
_END: Final = "-"  # RFC 6901: the place behind the last element
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
