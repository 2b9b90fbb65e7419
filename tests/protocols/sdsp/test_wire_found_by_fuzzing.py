"""Inputs that once escaped the typed errors of the frame decoder."""

from __future__ import annotations

import pytest

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.wire import decode


@pytest.mark.parametrize("raw", [b'{"uid":"u","serial":0,"X-a":1 "data":2}', b'{"uid":"u","ver":null,"data":"\xff"}'])
def test_broken_json_behind_an_unusual_attribute_is_malformed(raw: bytes) -> None:
    with pytest.raises(DecodeError) as error:
        decode(raw)
    assert error.value.reason is Reason.MALFORMED
