"""Every cap in one place: no queue, cache, pool or buffer in Syncline grows past a number written here.

Numbers an operator may change are settings (core/settings.py) whose defaults come from here.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND: Final = 1_000_000  # times are microseconds
HOUR: Final = 3_600 * SECOND
DAY: Final = 24 * HOUR

# the record
RAW_INLINE_MAX: Final = MIB  # larger raw bytes go to object storage by reference
RAW_MAX: Final = 64 * MIB
TEXT_MAX: Final = 1_024  # characters of topic, key, publisher and peer

# the journal
JOURNAL_QUEUE_MAX: Final = 10_000  # appends waiting for the writer thread
JOURNAL_COMMIT_RECORDS: Final = 4_096  # records in one group commit
JOURNAL_COMMIT_BYTES: Final = 32 * MIB
JOURNAL_PAGE_BYTES: Final = 8 * KIB
JOURNAL_CACHE_BYTES: Final = 64 * MIB  # pages one connection keeps in memory
JOURNAL_IDLE_READERS: Final = 8  # read-only connections kept open
JOURNAL_BUSY_MS: Final = 10_000  # how long a reader waits for a lock, during recovery of the file
JOURNAL_READ_MAX: Final = 100_000  # records one read returns, whatever its limit says
SEGMENT_SECONDS: Final = 5
SEGMENT_BYTES: Final = 64 * MIB
SEGMENT_RECORDS: Final = 1_000_000
REFUSED_PER_PEER_HOUR: Final = 1_000  # rejects and ignores kept as rows; more are only counted
REFUSED_PEERS: Final = 10_000  # peers counted by name in an hour; the rest share one counter
DISK_FREE_REJECTS: Final = 512 * MIB  # below this, rejects and ignores are no longer kept
DISK_FREE_ALL: Final = 128 * MIB  # below this, nothing is taken in
DISK_PROBE_SECONDS: Final = 1.0  # how old the last look at the disk may be

# the node
DELIVERY_BATCH: Final = 1_000  # records a follower is handed at once
STOP_SECONDS: Final = 10  # how long a node may take to stop its protocols

# HTTP
API_PAGE_RECORDS: Final = 10_000
API_BODY_BYTES: Final = 8 * MIB
API_CONNECTIONS: Final = 256
API_IDEMPOTENCY_KEYS: Final = 10_000

# fetching what a stranger's message points to
FETCH_BYTES: Final = 64 * MIB  # after decompression
FETCH_SECONDS: Final = 10  # for one try, from name look-up to the last byte
FETCH_TRIES: Final = 3
FETCH_REDIRECTS: Final = 3

# FlatBuffers
FLATBUFFERS_DEPTH_MAX: Final = 32  # tables inside tables
FLATBUFFERS_TABLES_MAX: Final = 16_384  # tables in one buffer
FLATBUFFERS_EXPANSION_MAX: Final = 8  # bytes a buffer unpacks to, per byte it has
FLATBUFFERS_SHARED_BYTES: Final = 4 * KIB  # and this much on top, so that small buffers may share strings

# SDS exchange
SDS_MESSAGE_BYTES: Final = 1_000_000  # of one frame, without the length in front
SDS_TEXT_MAX: Final = 256  # characters of ids, names and keys in messages
