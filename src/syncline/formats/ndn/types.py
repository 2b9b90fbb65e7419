"""The type numbers of NDN packets, NDNLPv2 and the conventions for name components. Facts only."""

from __future__ import annotations

from typing import Final

# packets
INTEREST: Final = 0x05
DATA: Final = 0x06

# names
NAME: Final = 0x07
IMPLICIT_DIGEST: Final = 0x01
PARAMETERS_DIGEST: Final = 0x02
GENERIC: Final = 0x08
KEYWORD: Final = 0x20
SEGMENT: Final = 50
BYTE_OFFSET: Final = 52
VERSION: Final = 54
TIMESTAMP: Final = 56  # microseconds
SEQUENCE: Final = 58

# Interest
CAN_BE_PREFIX: Final = 0x21
MUST_BE_FRESH: Final = 0x12
FORWARDING_HINT: Final = 0x1E
NONCE: Final = 0x0A
LIFETIME: Final = 0x0C
HOP_LIMIT: Final = 0x22
PARAMETERS: Final = 0x24
INTEREST_SIGNATURE_INFO: Final = 0x2C
INTEREST_SIGNATURE_VALUE: Final = 0x2E

# Data
META_INFO: Final = 0x14
CONTENT: Final = 0x15
SIGNATURE_INFO: Final = 0x16
SIGNATURE_VALUE: Final = 0x17
CONTENT_TYPE: Final = 0x18
FRESHNESS: Final = 0x19
FINAL_BLOCK: Final = 0x1A

# SignatureInfo
SIGNATURE_TYPE: Final = 0x1B
KEY_LOCATOR: Final = 0x1C
KEY_DIGEST: Final = 0x1D
SIGNATURE_NONCE: Final = 0x26
SIGNATURE_TIME: Final = 0x28
SIGNATURE_SEQUENCE: Final = 0x2A

# SignatureType values
DIGEST_SHA256: Final = 0
SHA256_RSA: Final = 1
SHA256_ECDSA: Final = 3
HMAC_SHA256: Final = 4
ED25519: Final = 5

# ContentType values
BLOB: Final = 0
APPLICATION_NACK: Final = 3
ENCAPSULATED: Final = DATA  # SVS-PS: the outer Data says that its content is a Data

# NDNLPv2
LP_PACKET: Final = 0x64
LP_FRAGMENT: Final = 0x50
LP_SEQUENCE: Final = 0x51
LP_FRAGMENT_INDEX: Final = 0x52
LP_FRAGMENT_COUNT: Final = 0x53
LP_PIT_TOKEN: Final = 0x62
LP_INCOMING_FACE: Final = 0x032C
LP_NACK: Final = 0x0320
LP_NACK_REASON: Final = 0x0321

# Nack reasons
NACK_CONGESTION: Final = 50
NACK_DUPLICATE: Final = 100
NACK_NO_ROUTE: Final = 150
