"""Who may command the forwarder: signatures of command Interests, their scope, and protection against replays.

Both forms in use are read: signed Interests of packet format 0.3, and the older one with timestamp, nonce and signature as
the last components of the name. What a command does is in `management.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syncline.core.errors import DecodeError, RefusedError
from syncline.core.limits import NDN_COMMAND_CLOCK_SECONDS, NDN_COMMAND_SIGNERS, SECOND
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries
from syncline.formats.ndn.packets import Interest
from syncline.formats.ndn.signing import Digest, Verifier
from syncline.formats.tlv import elements, read_header, read_integer, whole
from syncline.networks.ndn.faces import Face

LOCAL_PREFIX_COMPONENTS = 2  # /localhost/nfd, /localhop/nfd
SAME_TIME = 64  # commands of one signer in one millisecond
_DIGEST = Digest()


class Command(msgspec.Struct, frozen=True):
    """A command Interest taken apart."""

    local: bool  # below /localhost
    module: bytes
    verb: bytes
    parameters: bytes | None  # the encoded ControlParameters
    signature_kind: int | None = None
    signature_value: bytes = b""
    signed: bytes = b""
    time: int | None = None  # milliseconds
    nonce: bytes = b""


def read_command(interest: Interest) -> Command:
    """The command an Interest below /localhost/nfd or /localhop/nfd asks for."""
    name = interest.name if interest.digest_at < 0 else interest.name[: interest.digest_at]
    ends = boundaries(name)
    parts = [_value(name, start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    if len(parts) < LOCAL_PREFIX_COMPONENTS + 2:
        raise DecodeError("a command names a module and a verb")
    command = Command(parts[0] == b"localhost", parts[2], parts[3], parts[4] if len(parts) > 4 else None)
    signature = interest.signature
    if signature is None:
        return _old_command(name, ends, parts, command) if len(parts) >= 9 else command
    if not interest.digest_holds:
        raise DecodeError("the parameters do not have the digest the name says", reason=Reason.INVALID_SIGNATURE)
    return msgspec.structs.replace(
        command,
        signature_kind=signature.kind,
        signature_value=signature.value,
        signed=interest.signed,
        time=signature.time,
        nonce=signature.nonce or b"",
    )


class CommandGate:
    """Decides whether a command may be carried out.

    From faces on this machine a mere digest is enough unless `need_key`; from elsewhere only commands below /localhop,
    signed by one of `verifiers`. A command must be newer than the last one of its signer, or of the same time with
    another nonce.
    """

    def __init__(self, verifiers: Sequence[Verifier] = (), *, need_key: bool = False) -> None:
        self._verifiers = tuple(verifiers)
        self._need_key = need_key
        self._newest: dict[tuple[str, int], tuple[int, frozenset[bytes]]] = {}

    def check(self, face: Face, command: Command, now: int) -> None:
        """Refuse, with the reason, what may not be done. `now` is wall time in microseconds."""
        if command.local and not face.local:
            raise RefusedError("commands below /localhost come from this machine", reason=Reason.UNAUTHORISED)
        signer = self._signer(face, command)
        if command.time is None:
            raise RefusedError("a command states its time", reason=Reason.INVALID_FIELD)
        if abs(command.time * 1_000 - now) > NDN_COMMAND_CLOCK_SECONDS * SECOND:
            raise RefusedError("the command's time is too far from ours", reason=Reason.TOO_OLD)
        newest, nonces = self._newest.pop(signer, (-1, frozenset()))
        fresh = command.time > newest
        known = not fresh and (command.time < newest or command.nonce in nonces or len(nonces) >= SAME_TIME)
        self._newest[signer] = (newest, nonces) if known else (
            command.time, frozenset({command.nonce}) if fresh else nonces | {command.nonce},
        )  # fmt: skip
        if known:
            raise RefusedError("a command of that time was given before", reason=Reason.DUPLICATE)
        if len(self._newest) > NDN_COMMAND_SIGNERS:
            del self._newest[next(iter(self._newest))]

    def forget(self, face: Face) -> None:
        self._newest.pop(("face", face.id), None)

    def _signer(self, face: Face, command: Command) -> tuple[str, int]:
        if command.signature_kind is None:
            raise RefusedError("commands are signed", reason=Reason.INVALID_SIGNATURE)
        for number, verifier in enumerate(self._verifiers):
            if verifier.kind == command.signature_kind and verifier.verify(command.signed, command.signature_value):
                return "key", number
        if command.signature_kind == t.DIGEST_SHA256 and _DIGEST.verify(command.signed, command.signature_value):
            if face.local and not self._need_key:
                return "face", face.id
            raise RefusedError("this needs a command signed by a known key", reason=Reason.UNAUTHORISED)
        raise RefusedError("the command's signature does not verify", reason=Reason.INVALID_SIGNATURE)


def _value(name: Name, start: int, stop: int) -> bytes:
    _, at, end = read_header(name, start, stop)
    return name[at:end]


def _old_command(name: Name, ends: list[int], parts: list[bytes], command: Command) -> Command:
    """Fill in what the last four components hold: timestamp, nonce, SignatureInfo, SignatureValue."""
    time, nonce, info, value = parts[-4:]
    start, stop = whole(info, t.SIGNATURE_INFO)
    kinds = [
        read_integer(info, first, last) for kind, first, last in elements(info, start, stop) if kind == t.SIGNATURE_TYPE
    ]
    value_start, value_stop = whole(value, t.SIGNATURE_VALUE)
    if len(kinds) != 1 or len(time) not in (1, 2, 4, 8):
        raise DecodeError("the last components are not a signature")
    return msgspec.structs.replace(
        command,
        signature_kind=kinds[0],
        signature_value=value[value_start:value_stop],
        signed=name[: ends[-2]],
        time=int.from_bytes(time, "big"),
        nonce=nonce,
    )
