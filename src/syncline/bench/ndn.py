"""`ndn`: signed Data written and read, and whole exchanges through the forwarder, against python-ndn's codec.

An exchange is what the three parties do with packets: the consumer writes an Interest, the forwarder reads it, the producer
reads it and writes a signed Data, the forwarder reads that, the consumer reads it and checks the digest. Both sides run
through the same forwarder in memory, each with its own codec at all three places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from syncline.bench.report import best, case, growth, report
from syncline.core.errors import MissingError
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import (
    Data,
    Interest,
    Signature,
    decode_data,
    decode_interest,
    encode_data,
    encode_interest,
)
from syncline.formats.ndn.signing import Digest
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.forwarder import Codec, Forwarder, OwnCodec
from syncline.networks.ndn.routes import Route

PACKETS: Final = 4_000
ROUNDS: Final = 3
CODEC_BAR: Final = 5.0
EXCHANGE_BAR: Final = 3.0
CONTENT: Final = bytes(100)
PREFIX: Final = names.parse("/node/a/ndn/svs")
DIGEST: Final = Digest()


class Library(Protocol):
    """One way to write and read packets."""

    name: str
    codec: Codec

    def interest(self, name: bytes, number: int) -> bytes: ...

    def asked_name(self, wire: bytes) -> bytes: ...

    def data(self, name: bytes) -> bytes: ...

    def content(self, wire: bytes) -> bytes:
        """The content, once the digest was found right."""
        ...


class Ours:
    name = "syncline"
    codec: Codec = OwnCodec()

    def interest(self, name: bytes, number: int) -> bytes:
        return encode_interest(name, nonce=number.to_bytes(4, "big"), lifetime=4_000)

    def asked_name(self, wire: bytes) -> bytes:
        return decode_interest(wire).name

    def data(self, name: bytes) -> bytes:
        return encode_data(name, CONTENT, DIGEST, content_type=0, freshness=60_000)

    def content(self, wire: bytes) -> bytes:
        data = decode_data(wire)
        assert DIGEST.verify(data.signed, data.signature.value)
        return data.content


class PythonNdn:
    """python-ndn's encoder and parser, as its applications use them."""

    name = "python-ndn 0.5.2"

    def __init__(self) -> None:
        try:
            from ndn import encoding
            from ndn.security.signer.sha256_digest_signer import DigestSha256Signer
        except ImportError:
            raise MissingError("this benchmark needs python-ndn", hint="pip install 'syncline[dev]'") from None
        self._encoding: Any = encoding
        self._signer: Any = DigestSha256Signer()
        self.codec: Codec = _PythonNdnCodec(encoding)

    def interest(self, name: bytes, number: int) -> bytes:
        encoding = self._encoding
        parameters = encoding.InterestParam(nonce=number, lifetime=4_000)
        return bytes(encoding.make_interest(_formal(encoding, name), parameters))

    def asked_name(self, wire: bytes) -> bytes:
        return b"".join(map(bytes, self._encoding.parse_interest(wire)[0]))

    def data(self, name: bytes) -> bytes:
        encoding = self._encoding
        meta = encoding.MetaInfo(freshness_period=60_000)
        return bytes(encoding.make_data(_formal(encoding, name), meta, CONTENT, self._signer))

    def content(self, wire: bytes) -> bytes:
        _, _, content, signature = self._encoding.parse_data(wire)
        digest = hashlib.sha256()
        for part in signature.signature_covered_part:
            digest.update(part)
        assert digest.digest() == bytes(signature.signature_value_buf)
        return bytes(content)


class _PythonNdnCodec:
    """Reads packets for the forwarder with python-ndn."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def interest(self, wire: bytes) -> Interest:
        name, parameters, _, _ = self._encoding.parse_interest(wire)
        return Interest(
            wire, b"".join(map(bytes, name)), parameters.can_be_prefix, parameters.must_be_fresh,
            parameters.nonce.to_bytes(4, "big"), parameters.lifetime or 4_000, parameters.hop_limit, -1, (), None, -1,
            None, -1, -1,
        )  # fmt: skip

    def data(self, wire: bytes) -> Data:
        name, meta, content, signature = self._encoding.parse_data(wire)
        covered = signature.signature_covered_part
        size = sum(map(len, covered))
        start = len(wire) - size - len(signature.signature_value_buf) - 2
        return Data(
            wire, b"".join(map(bytes, name)), meta.content_type or 0, meta.freshness_period or 0, meta.final_block_id,
            bytes(content), Signature(signature.signature_info.signature_type, bytes(signature.signature_value_buf)),
            start, start + size,
        )  # fmt: skip


def _formal(encoding: Any, name: bytes) -> Any:
    return encoding.Name.from_bytes(bytes((7, len(name))) + name)


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure both ways of reading and writing."""
    count = max(100, round(PACKETS * scale))
    ours, theirs = Ours(), PythonNdn()
    assert ours.data(_name(1)) == theirs.data(_name(1)), "both must write the same packet"
    assert ours.interest(_name(1), 7) == theirs.interest(_name(1), 7)
    packets = [_seconds(partial(_write_and_read, library, count)) for library in (ours, theirs)]
    exchanges = [_seconds(partial(exchange, library, count)) for library in (ours, theirs)]
    sizes = [count, 4 * count, 16 * count]
    seconds = [_seconds(partial(exchange, ours, size), 1) for size in sizes]
    return report(
        "ndn",
        [
            _case("signed Data written and read", packets, count, CODEC_BAR, "packets/s"),
            _case("Interest–Data exchanges through the forwarder", exchanges, count, EXCHANGE_BAR, "exchanges/s"),
        ],
        growth=growth("exchanges through the forwarder", "exchanges", sizes, seconds),
    )


def _seconds(work: Callable[[], None], rounds: int = ROUNDS) -> float:
    return best(rounds, work)[0]


def _case(name: str, measured: list[float], count: int, bar: float, unit: str) -> dict[str, Any]:
    ours, theirs = measured
    return case(name, count / ours, count / theirs, PythonNdn.name, unit, bar=bar, ratio=theirs / ours)


def _name(number: int) -> bytes:
    return PREFIX + names.number(8, number)


def _write_and_read(library: Library, count: int) -> None:
    for number in range(count):
        assert library.content(library.data(_name(number))) == CONTENT


def exchange(library: Library, count: int) -> None:
    """Let a consumer ask for `count` packets of a producer, one after the other, each exactly once."""
    forwarder = Forwarder(codec=library.codec)
    consumer, producer = (_face(forwarder, uri) for uri in ("memory://consumer", "memory://producer"))
    forwarder.routes.add(PREFIX, Route(producer.id))
    for number in range(count):
        now = number * 1e-4
        name = _name(number)
        forwarder.receive(consumer, [library.interest(name, number)], now)
        [asked] = producer.take()
        forwarder.receive(producer, [library.data(library.asked_name(asked))], now)
        [answer] = consumer.take()
        assert library.content(answer) == CONTENT
    assert producer.counters.in_data == consumer.counters.out_data == count


def _face(forwarder: Forwarder, uri: str, notify: Callable[[], None] = lambda: None) -> Face:
    return forwarder.add_face(uri, local=True, notify=notify, now=0.0)
