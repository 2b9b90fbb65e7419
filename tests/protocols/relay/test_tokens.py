"""Client tokens: those real clients make are good, and every trick is refused with its reason."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest

from syncline.core.errors import DecodeError, RefusedError
from syncline.core.keys import NodeKey, verify
from syncline.core.limits import RELAY_CLOCK_SKEW, RELAY_TOKEN_SECONDS
from syncline.core.verdict import Reason
from syncline.protocols.relay.rules.tokens import check_token
from syncline.protocols.relay.wire.tokens import read, write

Vectors = Callable[[str], list[dict[str, Any]]]
KEY = NodeKey(bytes(range(32)))
HERE = "ws://127.0.0.1:7072"
NOW = 1_794_700_000  # seconds


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def token(header: dict[str, Any] | None = None, key: NodeKey = KEY, **changes: Any) -> str:
    claims = {"iss": KEY.did, "sub": "nonce", "aud": HERE, "iat": NOW, "exp": NOW + 86_400, **changes}
    claims = {name: value for name, value in claims.items() if value is not ...}
    signed = f"{part(header or {'alg': 'EdDSA', 'typ': 'JWT'})}.{part(claims)}"
    return f"{signed}.{part(key.sign(signed.encode()))}"


def refusal(text: str, now: float = NOW) -> Reason:
    with pytest.raises(RefusedError) as raised:
        check_token(text, audiences={HERE}, now=int(now * 1e6))
    return raised.value.reason


def test_tokens_of_real_clients_are_good_until_they_expire(vectors: Vectors) -> None:
    good = [each for each in vectors("relay") if each["name"].startswith("jwt_") and "accept" in each["expect"]]
    assert len(good) == 4
    for vector in good:
        claims, text = vector["meaning"]["payload"], vector["text"]
        found = check_token(text, audiences={claims["aud"]}, now=claims["iat"] * 1_000_000)
        assert (found.iss, found.sub, found.aud) == (claims["iss"], claims["sub"], claims["aud"])
        with pytest.raises(RefusedError, match="expired"):
            check_token(text, audiences={claims["aud"]}, now=claims["exp"] * 1_000_000)


def test_our_tokens_are_byte_for_byte_those_of_real_clients(vectors: Vectors) -> None:
    for vector in vectors("relay"):
        meaning = vector["meaning"]
        if "seed_hex" not in meaning:
            continue
        claims = meaning["payload"]
        made = write(
            NodeKey(bytes.fromhex(meaning["seed_hex"])),
            audience=claims["aud"],
            subject=claims["sub"],
            issued_at=claims["iat"],
            seconds=claims["exp"] - claims["iat"],
        )
        assert made == vector["text"], vector["name"]


def test_altered_tokens_are_refused(vectors: Vectors) -> None:
    bad = [each for each in vectors("relay") if each["name"].startswith("jwt_bad")]
    assert len(bad) == 2
    for vector in bad:
        claims = vector["meaning"]["payload"]
        with pytest.raises(RefusedError) as raised:
            check_token(vector["text"], audiences={claims["aud"]}, now=claims["iat"] * 1_000_000)
        assert raised.value.reason is Reason.INVALID_SIGNATURE


def test_the_recorded_connections_of_a_real_client_would_be_let_in(vectors: Vectors) -> None:
    opened = [each for each in vectors("relay") if each["name"].endswith("_open")]
    assert len(opened) == 3
    for vector in opened:
        text = vector["text"].partition("auth=")[2].partition("&")[0]
        claims = check_token(text, audiences={"ws://127.0.0.1:47721"}, now=1_794_728_720_000_000)
        assert claims.iss == vector["meaning"]["jwt"]["payload"]["iss"]


@pytest.mark.parametrize("alg", ["none", "HS256", "ES256", "RS256", "eddsa", ""])
def test_only_one_algorithm_is_accepted(alg: str) -> None:
    assert refusal(token({"alg": alg, "typ": "JWT"})) is Reason.INVALID_SIGNATURE


def test_an_unsigned_token_is_refused() -> None:
    signed = token().rpartition(".")[0]
    assert refusal(signed + ".") is Reason.INVALID_SIGNATURE


def test_a_token_signed_by_another_key_than_its_issuer_is_refused() -> None:
    assert refusal(token(key=NodeKey(bytes(32)))) is Reason.INVALID_SIGNATURE


def test_critical_extensions_are_refused() -> None:
    assert refusal(token({"alg": "EdDSA", "typ": "JWT", "crit": ["b64"], "b64": False})) is Reason.INVALID_SIGNATURE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "wss://relay.example.org"}, Reason.UNAUTHORISED),
        ({"aud": [HERE]}, Reason.MALFORMED),
        ({"aud": [HERE, "wss://relay.example.org"]}, Reason.MALFORMED),
        ({"aud": ...}, Reason.MALFORMED),
        ({"exp": ...}, Reason.MALFORMED),
        ({"exp": "1794786400"}, Reason.MALFORMED),
        ({"exp": 1e99}, Reason.MALFORMED),
        ({"exp": NOW}, Reason.EXPIRED),
        ({"iat": NOW + RELAY_CLOCK_SKEW // 1_000_000 + 1}, Reason.FUTURE_TIMESTAMP),
        ({"exp": NOW + RELAY_TOKEN_SECONDS + 1}, Reason.INVALID_FIELD),
        ({"iss": "did:web:example.org"}, Reason.INVALID_PUBLISHER),
        ({"iss": "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme"}, Reason.INVALID_PUBLISHER),
    ],
)
def test_claims_that_do_not_fit_are_refused(changes: dict[str, Any], reason: Reason) -> None:
    assert refusal(token(**changes)) is reason


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c.d", "....", "é.é.é", "e30.e30.e30", "!!!!.!!!!.!!!!"])
def test_what_is_not_a_token_is_malformed(text: str) -> None:
    assert refusal(text) is Reason.MALFORMED


def test_a_huge_token_is_not_even_taken_apart() -> None:
    assert refusal(token(sub="x" * 5_000)) is Reason.OVERSIZE


def test_a_second_spelling_of_the_same_bytes_is_refused() -> None:
    with pytest.raises(DecodeError):
        read(token() + "=")


def test_the_signature_covers_header_and_claims() -> None:
    found = read(token())
    assert verify(found.public, found.signature, found.signed)
    assert not verify(found.public, found.signature, found.signed + b"x")
