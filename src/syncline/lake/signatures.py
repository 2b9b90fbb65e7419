"""Ed25519 signatures of whole columns: the same verifier the node uses, one call a row, with nothing else in the loop.

Which bytes were signed, and by whom, is the protocols' business; they judge their own messages in stages.
"""

from __future__ import annotations

import pyarrow as pa

from syncline.core.keys import verify


def signatures_hold(public: pa.Array, signature: pa.Array, signed: pa.Array) -> pa.Array:
    """Whether each signature over the signed bytes is by the key; null where one of the three is absent."""
    rows = zip(public.to_pylist(), signature.to_pylist(), signed.to_pylist(), strict=True)
    return pa.array(
        [None if key is None or seal is None or data is None else verify(key, seal, data) for key, seal, data in rows],
        pa.bool_(),
    )
