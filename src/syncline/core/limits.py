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
JOURNAL_PAGE_BYTES: Final = 4 * KIB
JOURNAL_INSERT_ROWS: Final = 1_024  # rows one statement inserts
JOURNAL_LOG_BYTES: Final = 32 * MIB  # of write-ahead log before it is worked into the database
JOURNAL_CACHE_BYTES: Final = 64 * MIB  # pages the writer keeps in memory
JOURNAL_READER_CACHE_BYTES: Final = 8 * MIB
JOURNAL_IDLE_READERS: Final = 8  # read-only connections kept open
JOURNAL_BUSY_MS: Final = 10_000  # how long a reader waits for a lock, during recovery of the file
JOURNAL_READ_MAX: Final = 100_000  # records one read returns, whatever its limit says
JOURNAL_NAMES_WAITING: Final = 16_384  # names of accepted records in memory, twice at most
JOURNAL_NAMES_SLICE: Final = 512  # names merged into the table with one commit, at least
JOURNAL_SWEEP_SECONDS: Final = 1.0  # between two sweeps of what retention lets go of
JOURNAL_SWEEP_RECORDS: Final = 1_000  # removed by one sweep, at most
SEGMENT_SECONDS: Final = 5
SEGMENT_BYTES: Final = 64 * MIB
SEGMENT_RECORDS: Final = 1_000_000
SEGMENT_PARTITIONS: Final = 64  # files sealed together, one per protocol and day
SEGMENT_PAGE_RECORDS: Final = 10_000  # records read from the journal at once
SEGMENT_POLL_SECONDS: Final = 0.1  # between two looks at how many bytes wait
REFUSED_PER_PEER_HOUR: Final = 1_000  # rejects and ignores kept as rows; more are only counted
REFUSED_PEERS: Final = 10_000  # peers counted by name in an hour; the rest share one counter
DISK_FREE_REJECTS: Final = 512 * MIB  # below this, rejects and ignores are no longer kept
DISK_FREE_ALL: Final = 128 * MIB  # below this, nothing is taken in
DISK_PROBE_SECONDS: Final = 1.0  # how old the last look at the disk may be

# the node
SUBSCRIPTION_QUEUE: Final = 1_024  # records waiting for one slow listener
INCOMING_BATCH: Final = 1_024

# HTTP
API_PAGE_RECORDS: Final = 10_000
API_BODY_BYTES: Final = 8 * MIB
API_CONNECTIONS: Final = 256
API_IDEMPOTENCY_KEYS: Final = 10_000
