"""`jp`: JSON Patch (RFC 6902). A delta is an array of operations, also accepted as JSON text; `{}` and `""` are empty.

A patch is applied whole or not at all. In place, what was done is undone after a failure; otherwise only the containers
on the way to a change are copied, so an object of any size changes in about the time it takes to find the spot.
Making patches is in differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
        tree = _Owned(old, budget) if in_place else _Shared(old, budget)
        try:
            for operation in operations_in(delta):
                _run(tree, operation)
        except RecursionError:
            tree.undo()
            raise _too_deep() from None
        except DeltaError:
            tree.undo()
            raise
        return tree.root


def operations_in(delta: Any) -> list[Any]:
    """The operations of a patch in any of its forms."""
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


class _Owned:
    """A document that is ours to change, and what it takes to change it back."""

    __slots__ = ("_undo", "budget", "root")

    def __init__(self, root: Any, budget: Budget) -> None:
        self.root = root
        self.budget = budget
        self._undo: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def undo(self) -> None:
        for action, arguments in reversed(self._undo):
            action(*arguments)

    def parent(self, tokens: list[str]) -> Any:
        """The container that holds, or would hold, what `tokens` point at."""
        node = self.root
        for token in tokens[:-1]:
            node = _child(node, token)
        return node

    def set_root(self, value: Any) -> None:
        self._undo.append((self._restore_root, (self.root,)))
        self.root = value

    def set_member(self, container: dict[str, Any], key: str, value: Any) -> None:
        if key in container:
            self._undo.append((container.__setitem__, (key, container[key])))
        else:
            self._undo.append((container.__delitem__, (key,)))
        container[key] = value

    def set_item(self, container: list[Any], index: int, value: Any) -> None:
        self._undo.append((container.__setitem__, (index, container[index])))
        container[index] = value

    def insert(self, container: list[Any], index: int, value: Any) -> None:
        self.budget.toil((len(container) - index) >> 4)
        self._undo.append((container.__delitem__, (index,)))
        container.insert(index, value)

    def delete(self, container: Any, key: Any) -> Any:
        value = container[key]
        if type(container) is list:
            self.budget.toil((len(container) - key) >> 4)
            self._undo.append((container.insert, (key, value)))
        else:
            self._undo.append((container.__setitem__, (key, value)))
        del container[key]
        return value

    def _restore_root(self, root: Any) -> None:
        self.root = root


class _Shared(_Owned):
    """A document that others still use: containers are copied before they are changed, each at most once.

    Whatever is made during the patch is ours alone, and whatever came with it or was there before stays as it is, so
    there is nothing to undo.
    """

    __slots__ = ("_ours",)

    def __init__(self, root: Any, budget: Budget) -> None:
        super().__init__(root, budget)
        self._ours: dict[int, Any] = {}  # by id; the values keep the ids from being given to others

    def undo(self) -> None:
        pass

    def parent(self, tokens: list[str]) -> Any:
        node = self.root = self._own(self.root)
        for token in tokens[:-1]:
            child = _child(node, token)
            owned = self._own(child)
            if owned is not child:
                node[token if type(node) is dict else int(token)] = owned
            node = owned
        return node

    def _own(self, node: Any) -> Any:
        if (type(node) is not dict and type(node) is not list) or id(node) in self._ours:
            return node
        self.budget.toil(len(node) >> 4)
        copy = node.copy()
        self._ours[id(copy)] = copy
        return copy


def _run(tree: _Owned, operation: Any) -> None:
    if type(operation) is not dict:
        raise _malformed("an operation is an object")
    name = operation.get("op")
    path = _pointer(operation, "path")
    if name == "replace":
        _replace(tree, path, _value(tree, operation, path))
    elif name == "add":
        _add(tree, path, _value(tree, operation, path))
    elif name == "remove":
        _remove(tree, path)
    elif name == "test":
        if "value" not in operation:
            raise _malformed("test without value")
        if not _equal(_get(tree.root, path), operation["value"], tree.budget):
            raise DeltaError("a test in the patch fails", reason=Reason.INVALID_PAYLOAD, about=operation["path"])
    elif name == "move":
        _move(tree, _pointer(operation, "from"), path)
    elif name == "copy":
        value = _get(tree.root, _pointer(operation, "from"))
        _charge(tree, value, path)
        _add(tree, path, _copy(value))
    else:
        raise _malformed(f"there is no operation {str(name)[:20]!r}")


def _add(tree: _Owned, path: list[str], value: Any) -> None:
    if not path:
        tree.set_root(value)
        return
    container, token = tree.parent(path), path[-1]
    if type(container) is dict:
        tree.set_member(container, token, value)
    elif type(container) is list:
        index = len(container) if token == _END else _index(token)
        if index > len(container):
            raise _missing(token)
        tree.insert(container, index, value)
    else:
        raise _missing(token)


def _replace(tree: _Owned, path: list[str], value: Any) -> None:
    if not path:
        tree.set_root(value)
        return
    container, token = tree.parent(path), path[-1]
    if type(container) is dict and token in container:
        tree.set_member(container, token, value)
    elif type(container) is list and (index := _index(token)) < len(container):
        tree.set_item(container, index, value)
    else:
        raise _missing(token)


def _remove(tree: _Owned, path: list[str]) -> Any:
    if not path:
        raise _malformed("the whole document cannot be removed")
    container, token = tree.parent(path), path[-1]
    if type(container) is dict and token in container:
        return tree.delete(container, token)
    if type(container) is list and (index := _index(token)) < len(container):
        return tree.delete(container, index)
    raise _missing(token)


def _move(tree: _Owned, source: list[str], path: list[str]) -> None:
    value = _get(tree.root, source)
    if source == path:
        return
    if path[: len(source)] == source:  # RFC 6902: from must not be a proper prefix of path
        raise _malformed("a value cannot be moved into itself")
    if type(value) is dict or type(value) is list:
        _check_depth(measure(value, tree.budget).depth, path)
    _add(tree, path, _remove(tree, source))


def _get(root: Any, tokens: list[str]) -> Any:
    node = root
    for token in tokens:
        node = _child(node, token)
    return node


def _child(node: Any, token: str) -> Any:
    if type(node) is dict:
        try:
            return node[token]
        except KeyError:
            raise _missing(token) from None
    if type(node) is list and (index := _index(token)) < len(node):
        return node[index]
    raise _missing(token)


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    """The reference tokens of a JSON Pointer (RFC 6901)."""
    text = operation.get(name)
    if type(text) is not str:
        raise _malformed(f"{name} is missing or not text")
    if not text:
        return []
    if text[0] != "/":
        raise _malformed(f"{name} does not start with /")
    tokens = text[1:].split("/")
    if "~" in text:
        if _BAD_ESCAPE.search(text):
            raise _malformed(f"{name} has a ~ that is neither ~0 nor ~1")
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    return tokens


def _index(token: str) -> int:
    if _INDEX.fullmatch(token) is None:
        raise _missing(token)
    return int(token)


def _value(tree: _Owned, operation: dict[str, Any], path: list[str]) -> Any:
    if "value" not in operation:
        raise _malformed("an operation that needs a value has none")
    value = operation["value"]
    _charge(tree, value, path)
    return value


def _charge(tree: _Owned, value: Any, path: list[str]) -> None:
    kind = type(value)
    if kind is dict or kind is list:
        size, depth = measure(value, tree.budget)
        _check_depth(depth, path)
    else:
        size = len(value) + 8 if kind is str else 8
    tree.budget.grow(size + (len(path[-1]) if path else 0))


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


_END: Final = "-"  # RFC 6901: the place behind the last element
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
