"""Hello: which version, schemas and capabilities each side has, and whether the two can talk.

A schema's identifier carries no version and upstream changed fields under the same name, so each side also names the
field list it means; where they differ, the schema is unknown between the two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.protocols.sds.catalogue import plain_name, standard
from syncline.protocols.sds.wire import VERSION, Hello

CAPABILITIES: Final = ("filter.v1", "sync.bloom.v1")


def greeting(schemas: Iterable[str]) -> Hello:
    """Our hello."""
    names = sorted(schemas)
    return Hello(
        protocol_version=VERSION,
        supported_schemas=tuple(names),
        capabilities=(*CAPABILITIES, *(standard(name).capability for name in names)),
    )


def checked(hello: Hello) -> Hello:
    """A peer's hello, if we can talk to it: the same major version. Raises DecodeError otherwise."""
    match = re.fullmatch(r"(\d{1,9})\.\d{1,9}\.\d{1,9}(?:[-+].{1,64})?", hello.protocol_version)
    if match is None:
        raise DecodeError("a version is three numbers", reason=Reason.INVALID_FIELD, about="protocol_version")
    if match[1] != VERSION.partition(".")[0]:
        raise DecodeError(
            f"version {hello.protocol_version} and our {VERSION} differ in their first number",
            reason=Reason.UNSUPPORTED_VERSION,
            about="protocol_version",
        )
    if max(len(hello.supported_schemas), len(hello.capabilities)) > limits.SDS_LIST_MAX:
        raise DecodeError("more schemas or capabilities than anybody has", reason=Reason.TOO_COMPLEX)
    return hello


def same_schema(name: str, hello: Hello) -> bool:
    """Whether a peer means the same field list by a schema's name; one that does not say is believed."""
    plain = plain_name(name)
    said = {each for each in hello.capabilities if each.startswith(f"schema:{plain}:")}
    return not said or standard(plain).capability in said


def shared_schemas(ours: Collection[str], hello: Hello) -> frozenset[str]:
    """The schemas both sides have and mean alike."""
    theirs = {plain_name(name) for name in hello.supported_schemas}
    return frozenset(name for name in ours if name in theirs and same_schema(name, hello))
