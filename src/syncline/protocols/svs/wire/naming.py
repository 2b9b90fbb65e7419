"""The names of a group: sync Interests, outer Data and mapping queries, built and taken apart.

sync      /<group>/v=2/<digest>
outer     /<node>/<group>/<seq>               unsegmented
          /<node>/<group>/<seq>/v=0/seg=<i>   segmented
mapping   /<node>/<group>/MAPPING/<low>/<high>
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries, generic, number, number_of

VERSION_2: Final = number(t.VERSION, 2)
VERSION_0: Final = number(t.VERSION, 0)  # SVS-PS: segments have version 0
MAPPING: Final = generic(b"MAPPING")


class OuterName(msgspec.Struct, frozen=True, gc=False):
    """The name of an outer Data. Without a segment it is unsegmented."""

    node: Name
    seq: int
    segment: int | None


class MappingName(msgspec.Struct, frozen=True, gc=False):
    """The name of a mapping query and of its answer."""

    node: Name
    low: int
    high: int


def sync_name(group: Name) -> Name:
    """What sync Interests of SVS v2 are named, before the digest of their parameters."""
    return group + VERSION_2


def outer_name(node: Name, group: Name, seq: int, segment: int | None = None) -> Name:
    name = node + group + number(t.GENERIC, seq)
    return name if segment is None else name + VERSION_0 + number(t.SEGMENT, segment)


def mapping_name(node: Name, group: Name, low: int, high: int) -> Name:
    return node + group + MAPPING + number(t.GENERIC, low) + number(t.GENERIC, high)


def read_name(name: Name, group: Name) -> OuterName | MappingName:
    """What a name below some node's prefix in `group` stands for."""
    found = split_name(name)
    node, at = found.node, len(found.node) - len(group)
    if at <= 0 or not node.endswith(group) or at not in boundaries(node):
        raise DecodeError("a name of another group", reason=Reason.INVALID_TOPIC)
    return msgspec.structs.replace(found, node=node[:at])


def split_name(name: Name) -> OuterName | MappingName:
    """The same without knowing the group: what is given as the node is node and group together."""
    ends = boundaries(name)
    starts = [0, *ends[:-1]]
    if len(ends) >= 3 and name[starts[-3] : ends[-3]] == MAPPING:
        low = number_of(t.GENERIC, name, starts[-2], ends[-2])
        high = number_of(t.GENERIC, name, starts[-1], ends[-1])
        if low is None or high is None or low > high:
            raise _bad("a mapping is of a range of sequence numbers")
        return MappingName(name[: starts[-3]], low, high)
    segment: int | None = None
    if len(ends) >= 3 and name[starts[-2] : ends[-2]] == VERSION_0:
        segment = number_of(t.SEGMENT, name, starts[-1], ends[-1])
        if segment is None:
            raise _bad("a version is followed by a segment")
        starts, ends = starts[:-2], ends[:-2]
    seq = number_of(t.GENERIC, name, starts[-1], ends[-1]) if ends else None
    if seq is None:
        raise _bad("an outer name ends with a sequence number")
    return OuterName(name[: starts[-1]], seq, segment)


def _bad(message: str) -> DecodeError:
    return DecodeError(message, reason=Reason.INVALID_FIELD, about="name")
