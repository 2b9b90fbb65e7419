"""Network messages, tokens and requests of the relay that break one requirement each."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from syncline.core import limits
from syncline.core.errors import RefusedError
from syncline.core.keys import NodeKey
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Outcome, Reason, reject
from syncline.protocols.relay.rules.messages import RelayJudge
from syncline.protocols.relay.rules.tokens import check_token
from syncline.protocols.relay.wire.messages import V1, V2, NetworkMessage, encode
from syncline.protocols.relay.wire.tokens import write
from syncline.testing.badinputs.case import Bad

R = Reason
NOW = 1_772_323_200_000_000
TOPIC = "ab" * 32
GOOD = NetworkMessage(tag=7, prompt=True, timestamp=NOW // 1_000, ttl=300, message=b"hello")
KEY = NodeKey(bytes(range(32)))
AUDIENCE = "wss://relay.example"


def arrival(raw: bytes, topic: str = TOPIC) -> Arrival:
    incoming = Incoming(protocol="relay", topic=topic, raw=raw, peer="peer-relay", received_at=NOW)
    return RelayJudge()(incoming)


def _bad(name: str, raw: bytes, reason: Reason, topic: str = TOPIC, outcome: Outcome = Outcome.REJECT) -> Bad:
    return Bad(protocol="relay", name=name, reason=reason, outcome=outcome, judged=lambda: arrival(raw, topic), raw=raw)


def _with(**changes: Any) -> bytes:
    return encode(msgspec.structs.replace(GOOD, **changes))


def cases() -> Iterator[Bad]:
    yield from _messages()
    yield from _tokens()


def _messages() -> Iterator[Bad]:
    good, wide = encode(GOOD), _with(tag=3_001)
    for name, raw, reason in (
        ("nothing", b"", R.MALFORMED),
        ("the prefix alone", b"irn", R.UNSUPPORTED_VERSION),
        ("another prefix", b"iro" + good[3:], R.MALFORMED),
        ("upper case prefix", b"IRN" + good[3:], R.MALFORMED),
        ("version 0", b"irn\0" + good[4:], R.UNSUPPORTED_VERSION),
        ("version 3", b"irn\3" + good[4:], R.UNSUPPORTED_VERSION),
        ("version 255", b"irn\xff" + good[4:], R.UNSUPPORTED_VERSION),
        ("a v1 header cut short", good[: V1.size - 1], R.MALFORMED),
        ("a v2 header cut short", wide[: V2.size - 1], R.MALFORMED),
        ("a message cut short", good[:-1], R.MALFORMED),
        ("a byte too many", good + b"x", R.MALFORMED),
        ("a length of 2^64-1", good[: V1.size - 8] + b"\xff" * 8 + b"hello", R.MALFORMED),
        ("a length of 0 before text", good[: V1.size - 8] + bytes(8) + b"hello", R.MALFORMED),
        ("prompt 2 in v1", good[: V1.size - 25] + b"\2" + good[V1.size - 24 :], R.INVALID_FIELD),
        ("prompt 255 in v2", wide[: V2.size - 25] + b"\xff" + wide[V2.size - 24 :], R.INVALID_FIELD),
        ("text that is not UTF-8", _with(message=b"\xff\xfe"), R.MALFORMED),
        ("text with half a character", _with(message="é".encode()[:1]), R.MALFORMED),
        ("a surrogate in UTF-8", _with(message=b"\xed\xa0\x80"), R.MALFORMED),
        ("ttl 0", _with(ttl=0), R.INVALID_FIELD),
        ("ttl beyond the most", _with(ttl=limits.RELAY_TTL_MAX + 1), R.INVALID_FIELD),
        ("ttl of 2^64-1", _with(ttl=2**64 - 1), R.INVALID_FIELD),
        ("dated ahead", _with(timestamp=(NOW + limits.RELAY_CLOCK_SKEW) // 1_000 + 1), R.FUTURE_TIMESTAMP),
        ("dated 2^64-1", _with(timestamp=2**64 - 1), R.FUTURE_TIMESTAMP),
        ("oversize", _with(message=b"x" * (limits.RELAY_MESSAGE_MAX + 1)), R.OVERSIZE),
        ("far oversize", _with(message=b"x" * (2 * limits.RELAY_MESSAGE_MAX)), R.OVERSIZE),
        ("v2 read as v1", b"irn\1" + wide[4:], R.MALFORMED),
        ("v1 read as v2", b"irn\2" + good[4:], R.MALFORMED),
    ):
        yield _bad(name, raw, reason)
    yield _bad("expired", _with(timestamp=NOW // 1_000 - 300_000), R.EXPIRED, outcome=Outcome.IGNORE)
    yield _bad("dated 1970", _with(timestamp=0), R.EXPIRED, outcome=Outcome.IGNORE)
    for topic in (
        "",
        "ab",
        "AB" * 32,
        "ab" * 33,
        "zz" * 32,
        "ab" * 31 + " b",
        "ab" * 32 + "\n",
        "é" * 64,
        "../" * 21 + "a",
    ):
        yield _bad(f"topic {topic[:20]!r} of {len(topic)}", good, R.INVALID_TOPIC, topic)


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def token(header: Any = None, key: NodeKey = KEY, **claims: Any) -> str:
    """A token signed properly over whatever it says."""
    seconds = NOW // 1_000_000
    said = {"iss": KEY.did, "sub": "s", "aud": AUDIENCE, "iat": seconds, "exp": seconds + 3_600, **claims}
    said = {name: value for name, value in said.items() if value is not ...}
    signed = f"{_part(header or {'alg': 'EdDSA', 'typ': 'JWT'})}.{_part(said)}"
    return f"{signed}.{base64.urlsafe_b64encode(key.sign(signed.encode())).rstrip(b'=').decode()}"


def _tokens() -> Iterator[Bad]:
    def bad(name: str, text: str, reason: Reason) -> Bad:
        def judged() -> Arrival:
            found = arrival(encode(GOOD))
            try:
                check_token(text, audiences={AUDIENCE}, now=NOW)
            except RefusedError as error:
                return found.judged(reject(error.reason, error.message))
            return found

        return Bad(protocol="relay", name=f"token: {name}", reason=reason, judged=judged, raw=text.encode())

    good = token()
    assert check_token(good, audiences={AUDIENCE}, now=NOW).iss == KEY.did
    head, body, signature = good.split(".")
    second, other = NOW // 1_000_000, NodeKey(bytes(32))
    for name, text, reason in (
        ("nothing", "", R.MALFORMED),
        ("one part", head, R.MALFORMED),
        ("two parts", f"{head}.{body}", R.MALFORMED),
        ("four parts", f"{good}.x", R.MALFORMED),
        ("padding", good + "=", R.MALFORMED),
        ("not base64", f"!!.{body}.{signature}", R.MALFORMED),
        (
            "a header that is no JSON",
            f"{base64.urlsafe_b64encode(b'x').decode().rstrip('=')}.{body}.{signature}",
            R.MALFORMED,
        ),
        ("claims that are a list", f"{head}.{_part([])}.{signature}", R.MALFORMED),
        ("oversize", "x" * (limits.RELAY_TOKEN_BYTES + 1), R.OVERSIZE),
        ("alg none", token({"alg": "none", "typ": "JWT"}), R.INVALID_SIGNATURE),
        ("alg none, unsigned", f"{_part({'alg': 'none', 'typ': 'JWT'})}.{body}.", R.INVALID_SIGNATURE),
        ("alg HS256", token({"alg": "HS256", "typ": "JWT"}), R.INVALID_SIGNATURE),
        ("alg eddsa in lower case", token({"alg": "eddsa", "typ": "JWT"}), R.INVALID_SIGNATURE),
        ("alg ES256", token({"alg": "ES256", "typ": "JWT"}), R.INVALID_SIGNATURE),
        ("alg missing", token({"typ": "JWT"}), R.MALFORMED),
        ("another typ", token({"alg": "EdDSA", "typ": "JWE"}), R.INVALID_SIGNATURE),
        ("crit", token({"alg": "EdDSA", "typ": "JWT", "crit": ["b64"]}), R.INVALID_SIGNATURE),
        ("signed by somebody else", token(key=other), R.INVALID_SIGNATURE),
        ("a signature of zeros", f"{head}.{body}.{'A' * 86}", R.INVALID_SIGNATURE),
        ("no signature", f"{head}.{body}.", R.INVALID_SIGNATURE),
        ("the body of another token", f"{head}.{token(sub='t').split('.')[1]}.{signature}", R.INVALID_SIGNATURE),
        ("an issuer that is no did", token(iss="alice"), R.INVALID_PUBLISHER),
        ("an issuer of another kind", token(iss="did:web:example.org"), R.INVALID_PUBLISHER),
        (
            "a did:key of another curve",
            token(iss="did:key:zDnaeTiq1PdzvZXUaMdezchcMJQpBdH2VN4pgrrEhMCCbmwSb"),
            R.INVALID_PUBLISHER,
        ),
        ("expired", token(iat=second - 7_200, exp=second - 3_600), R.EXPIRED),
        ("expires now", token(iat=second - 10, exp=second), R.EXPIRED),
        ("not valid yet", token(iat=second + 3_600, exp=second + 7_200), R.FUTURE_TIMESTAMP),
        ("lives too long", token(exp=second + limits.RELAY_TOKEN_SECONDS + 1), R.INVALID_FIELD),
        ("another audience", token(aud="wss://elsewhere.example"), R.UNAUTHORISED),
        ("an audience with a path", token(aud=AUDIENCE + "/x"), R.UNAUTHORISED),
        ("an audience that begins alike", token(aud=AUDIENCE + ".evil.example"), R.UNAUTHORISED),
        ("an empty audience", token(aud=""), R.UNAUTHORISED),
        ("a list of audiences", token(aud=[AUDIENCE, "wss://elsewhere.example"]), R.MALFORMED),
        ("no audience", token(aud=...), R.MALFORMED),
        ("no expiry", token(exp=...), R.MALFORMED),
        ("no issuer", token(iss=...), R.MALFORMED),
        ("times as text", token(exp=str(second + 60)), R.MALFORMED),
        ("times as fractions", token(exp=second + 0.5), R.MALFORMED),
        (
            "another relay's own",
            write(KEY, audience="wss://b", subject="s", issued_at=second, seconds=60),
            R.UNAUTHORISED,
        ),
    ):
        yield bad(name, text, reason)
