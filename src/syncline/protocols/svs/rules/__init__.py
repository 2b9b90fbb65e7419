"""Whether a packet of a group is good: structure, names and the four signatures, from bytes and keys alone."""

from syncline.protocols.svs.rules.judge import Judged, examine, judge_arrival, judge_sync, record_id
from syncline.protocols.svs.rules.trust import (
    ANYTHING,
    DIGEST_ONLY,
    Keys,
    Signers,
    Trust,
    TrustedKey,
    Validator,
    trust_of,
)

__all__ = [
    "ANYTHING",
    "DIGEST_ONLY",
    "Judged",
    "Keys",
    "Signers",
    "Trust",
    "TrustedKey",
    "Validator",
    "examine",
    "judge_arrival",
    "judge_sync",
    "record_id",
    "trust_of",
]
