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
ID_MAX: Final = 4 * TEXT_MAX + 64  # bytes of an id: a name of so many characters in UTF-8, and numbers

# the journal
JOURNAL_QUEUE_MAX: Final = 10_000  # appends waiting for the writer thread
JOURNAL_COMMIT_RECORDS: Final = 4_096  # records in one group commit
JOURNAL_COMMIT_BYTES: Final = 32 * MIB
JOURNAL_PAGE_BYTES: Final = 4 * KIB
JOURNAL_INSERT_ROWS: Final = 384  # rows one statement inserts; apsw keeps none longer than 16 KiB prepared
JOURNAL_LOG_BYTES: Final = 32 * MIB  # of write-ahead log before it is worked into the database
JOURNAL_LOG_COMMITS: Final = 16  # commits between two looks at the length of the log
JOURNAL_CACHE_BYTES: Final = 64 * MIB  # pages the writer keeps in memory
JOURNAL_READER_CACHE_BYTES: Final = 8 * MIB
JOURNAL_IDLE_READERS: Final = 8  # read-only connections kept open
JOURNAL_BUSY_MS: Final = 10_000  # how long a reader waits for a lock, during recovery of the file
JOURNAL_READ_MAX: Final = 100_000  # records one read returns, whatever its limit says
JOURNAL_PAGE_RAW: Final = 16 * MIB  # raw bytes at which a page of records is full, and one record more at most
JOURNAL_RUN_RECORDS: Final = 32_768  # records whose terms become one run; twice as many wait in memory at most
JOURNAL_SLICE_RECORDS: Final = 4_096  # records between two commits that carry a part of a run to its table
JOURNAL_CHUNK_BYTES: Final = 3_840  # terms in one row of their table: a page, nearly
JOURNAL_FILTER_BITS: Final = 1 << 20  # of a run's filter of names; a power of two
JOURNAL_FILTER_RUNS: Final = 4_096  # runs that have a filter in memory, of 128 KiB each
JOURNAL_TERMS_CACHED: Final = 65_536  # hashes of topics, keys and publishers kept at hand
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

# the lake
LAKE_BATCH_SEGMENTS: Final = 1_000  # segments one batch lands; the driver holds their names
LAKE_LOOK_SEGMENTS: Final = 50_000  # segments the tables are asked about at once; the driver holds their names
LAKE_SWEEP_SECONDS: Final = 300.0  # how often a following pipeline compares all that is sealed with the tables
LAKE_TASK_BYTES: Final = 64 * MIB  # segment bytes one task lands
LAKE_STATE_FILE_BYTES: Final = 32 * MIB  # a state file of this size is rewritten only if a key in it changed
LAKE_BUCKETS: Final = 16  # partitions of a keyed or state table, fixed when the table is made
LAKE_COMMIT_ATTEMPTS: Final = 8  # how often a batch is computed anew because somebody else committed first
LAKE_PROBLEMS: Final = 1_000  # quarantined segments a run remembers by name; more are only counted
LAKE_KEEP_VERSIONS_HOURS: Final = 168  # how long files that no snapshot names any more are kept
LAKE_LAG_SECONDS: Final = 15.0  # how often a following pipeline looks how far behind it is
LAKE_STORES: Final = 8  # clients of object stores a process keeps
QUERY_SECONDS: Final = 30.0
QUERY_MEMORY: Final = 1_024 * MIB
QUERY_ROWS: Final = 10_000  # rows an interactive query returns
QUERY_BYTES: Final = 256 * MIB  # of Arrow memory an interactive query returns
QUERY_CURSORS: Final = 8  # idle ones kept open
QUERY_STATEMENTS: Final = 32  # bound statements one cursor remembers
QUERY_TEXT: Final = 100 * KIB  # characters of one SQL statement

# the node
DELIVERY_BATCH: Final = 1_000  # records a follower is handed at once

# libp2p connections
CONNECTIONS: Final = 128  # in all
CONNECTIONS_OURS: Final = 8  # one in so many is kept for peers that we dial: strangers must not cut us off from them
CONNECTIONS_PER_ADDRESS: Final = 16
CONNECTIONS_PER_PEER: Final = 2  # both may dial at the same moment
HANDSHAKES: Final = 32  # connections that have not proven a PeerID yet
HANDSHAKE_SECONDS: Final = 10.0
DIALS_PER_ADDRESS: Final = 5.0  # new connections taken from one address, per second
DIALS_PER_ADDRESS_BURST: Final = 50.0
ADDRESSES_WATCHED: Final = 10_000  # addresses and peers whose behaviour is remembered
STREAM_WINDOW: Final = 256 * KIB  # unread bytes of one stream
STREAMS_PER_CONNECTION: Final = 64  # opened by the peer
CONNECTION_OUTPUT: Final = 256 * KIB  # bytes waiting to be sent before writers wait
CONNECTION_WRITE: Final = 256 * KIB  # bytes sent at once
SLOW_PEER_SECONDS: Final = 5.0  # in which a peer must take what we have for it, or at least so much of it:
SLOW_PEER_BYTES: Final = 64 * KIB
KEEPALIVE_SECONDS: Final = 30.0
FAULTS_FORGIVEN: Final = 16.0  # rejected messages or broken frames of one peer; half of them forgotten a minute
BAN_SECONDS: Final = 300.0

# pubsub
PUBSUB_RPC_BYTES: Final = MIB  # one RPC, as other implementations cap it
PUBSUB_MESSAGE_BYTES: Final = MIB - 4 * KIB  # a message's data, so that its RPC fits
PUBSUB_UNDECIDED: Final = 1_024  # deliveries of one neighbour on one topic that wait for a verdict or for forwarding
PUBSUB_UNDECIDED_BYTES: Final = 4 * MIB  # and their bytes, on all topics
PUBSUB_BATCH: Final = 256  # deliveries a subscription hands over at once
PUBSUB_OUTBOX_BYTES: Final = 4 * MIB  # queued for one neighbour; beyond that publishers wait
PUBSUB_OUTBOX_CONTROL: Final = 1_024  # control messages queued for one neighbour; more are dropped and counted
PUBSUB_WRITE: Final = 64 * KIB  # RPCs gathered into one write
PUBSUB_TOPICS_PER_PEER: Final = 256
PUBSUB_TOPIC_CHARACTERS: Final = 256
PUBSUB_SEEN: Final = 65_536  # message ids remembered to recognise repeats
PUBSUB_SEEN_SECONDS: Final = 120.0
PUBSUB_CACHE_BYTES: Final = 16 * MIB  # recent messages kept to answer IWANT
PUBSUB_CONTROL_PER_HEARTBEAT: Final = 512  # RPCs with control heard from one peer between two heartbeats: two a topic
PUBSUB_IDS_PER_HEARTBEAT: Final = 5_000  # message ids in IHAVE and IWANT heard from one peer, likewise
PUBSUB_BACKOFFS: Final = 65_536  # peers that are kept out of a topic's mesh for a while

# ShrEx
SHREX_NOTIFICATION_BYTES: Final = KIB  # of a notification's protobuf
SHREX_MESSAGE_BYTES: Final = 4 * KIB  # of the signed pubsub message around it
SHREX_HEADER_BYTES: Final = 4 * MIB  # of a header source's answer: validators, commit and roots come with it
SHREX_HEADERS: Final = 10_000  # heights below the head whose headers are kept to check notifications
SHREX_HELD_PER_PEER: Final = 16  # notifications of one peer that wait for their header
SHREX_HELD: Final = 4_096  # and of all peers
SHREX_AHEAD: Final = 100  # heights ahead of the head that are waited for
SHREX_VALIDATION_SECONDS: Final = 120.0
SHREX_POOLS: Final = 10  # heights below the newest header whose pools are kept
SHREX_POOL_PEERS: Final = 1_024  # peers in one pool
SHREX_NODES: Final = 4_096  # peers that ever announced something true
SHREX_GC_SECONDS: Final = 30.0
SHREX_COOLDOWN_SECONDS: Final = 3.0
SHREX_BLACKLISTED_HASHES: Final = 1_024
SHREX_BLACKLISTED_PEERS: Final = 4_096
SHREX_WAITERS: Final = 1_024  # requests that wait for a peer
SHREX_LISTENER_QUEUE: Final = 1_024  # notifications one listener has yet to take
SHREX_LISTENERS: Final = 64
SHREX_SOURCE_SECONDS: Final = 30.0  # a header source's whole answer
SHREX_HEADERS_PER_ROUND: Final = 100  # headers fetched before others get a turn

# HTTP
API_PAGE_RECORDS: Final = 10_000
API_BODY_BYTES: Final = 8 * MIB
API_REQUESTS: Final = 2_048  # being answered at once, followers of objects among them

# fetching what a stranger's message points to
FETCH_BYTES: Final = 64 * MIB  # after decompression
FETCH_SECONDS: Final = 10  # for one try, from name look-up to the last byte
FETCH_TRIES: Final = 3
FETCH_REDIRECTS: Final = 3

# SDSP
SDSP_FRAME_MAX: Final = 16 * MIB  # bytes of one frame
SDSP_OBJECT_MAX: Final = 64 * MIB  # bytes of an object, whatever its frames and deltas unpack to
SDSP_DEPTH_MAX: Final = 128  # containers inside containers, in a frame or an object
SDSP_URI_MAX: Final = 8 * KIB  # characters of dataUri and historyUri
SDSP_ALG_MAX: Final = 64  # characters of an algorithm's code
SDSP_PATCH_OPS: Final = 100_000  # operations in one JSON Patch
SDSP_DELTA_WORK: Final = 50_000_000  # elements one delta may move, copy or compare
SDSP_SERIAL_MAX: Final = 2**63 - 1
SDSP_SERIAL_JUMP: Final = 1_000_000  # serials an unauthenticated frame may be ahead of the newest one known
SDSP_REORDER_FRAMES: Final = 1_024  # frames of one object waiting for an earlier one
SDSP_REORDER_BYTES: Final = 64 * MIB
SDSP_REORDER_SECONDS: Final = 5.0
SDSP_REMEMBERED: Final = 1_024  # applied frames of one object whose content is remembered, to notice forks
SDSP_HISTORY_FRAMES: Final = 10_000  # frames of one history answer that are looked at
SDSP_HISTORY_SECONDS: Final = 60.0  # an unanswered question counts as failed after this
SDSP_BACKOFF_FIRST: Final = 0.5  # seconds before history is asked after a failure; doubles with each
SDSP_BACKOFF_MAX: Final = 60.0

# SDSP's transports and storage
WEBSOCKET_MESSAGE: Final = 16 * MIB
PORTAL_CALLS: Final = 64  # calls waiting for the asyncio thread at once
SDSP_HUBS: Final = 1_000  # memory hubs in one process
SDSP_HUB_OBJECTS: Final = 10_000  # objects in one memory hub
SDSP_HUB_FRAMES: Final = 10_000  # newest frames of one object that a memory hub keeps
SDSP_BATCH: Final = 500  # frames that cross to or from another thread at once
SDSP_PENDING: Final = 10_000  # publishes waiting for a transport
SDSP_HEAVY_BYTES: Final = 64 * KIB  # work on larger objects is done beside the event loop
SDSP_HEAVY_FRAMES: Final = 100  # as are histories of more frames
SDSP_INBOX: Final = 64  # frames and answers waiting for a follower's loop
SDSP_POLL_SECONDS: Final = 25  # a long poll is answered after this, news or not
SDSP_KEEP_ALIVE_SECONDS: Final = 15  # a server-sent event stream is never silent for longer
SDSP_SILENCE_SECONDS: Final = 45  # a follower takes a connection that was silent for this long for broken
SDSP_OBJECTS: Final = 1_000  # objects whose newest state a node keeps in memory
SDSP_LIVE_BYTES: Final = 256 * MIB  # of these states together
SDSP_RECENT: Final = 64  # newest frames of an object that a node keeps in memory for its followers
SDSP_FOLLOWERS: Final = 1_000  # followers of objects on one node
SDSP_KEEPER_SECONDS: Final = 3_600  # between two looks for quiet objects that the journal is about to forget
SDSP_PAGE_FRAMES: Final = 1_000  # frames in one answer
SDSP_PAGE_BYTES: Final = 8 * MIB
SDSP_INLINE_BYTES: Final = MIB  # objects kept elsewhere that history answers carry themselves
SDSP_OBJECT_TTL: Final = 7 * DAY  # how long a stored object can be loaded

# FlatBuffers
FLATBUFFERS_DEPTH_MAX: Final = 32  # tables inside tables
FLATBUFFERS_TABLES_MAX: Final = 16_384  # tables in one buffer
FLATBUFFERS_EXPANSION_MAX: Final = 8  # bytes a buffer unpacks to, per byte it has
FLATBUFFERS_SHARED_BYTES: Final = 4 * KIB  # and this much on top, so that small buffers may share strings

# NDN packets
NDN_PACKET_BYTES: Final = 8_800  # the largest packet any NDN forwarder takes
NDN_NAME_COMPONENTS: Final = 64
NDN_FORWARDING_HINTS: Final = 8

# SDS exchange
SDS_MESSAGE_BYTES: Final = 1_000_000  # of one frame, without the length in front
SDS_ANSWER_BYTES: Final = SDS_MESSAGE_BYTES + 4 * KIB  # of an answer: the largest record must fit into one
SDS_PAGE_BYTES: Final = 900_000  # at which an answer is full
SDS_PAGE_RECORDS: Final = 1_000  # in one answer
SDS_PAGE_DEFAULT: Final = 100  # records, where a request does not say
SDS_OFFSET_MAX: Final = 1_000_000
SDS_TEXT_MAX: Final = 256  # characters of ids, names and keys in messages
SDS_LIST_MAX: Final = 1_024  # schemas or capabilities in one message
SDS_FILTER_DEPTH: Final = 8
SDS_FILTER_NODES: Final = 64
SDS_FILTER_VALUES: Final = 256  # in the list of one `in` or `notIn`
SDS_BLOOM_BYTES: Final = 512 * KIB
SDS_BLOOM_HASHES: Final = 32
SDS_PUBLISH_RATE: Final = 10  # a second: per publisher on gossip, per peer on streams
SDS_GOSSIP_SLACK: Final = 1.0  # seconds that messages of one publisher may be bunched up on their way by gossip
SDS_QUERY_RATE: Final = 100  # a second per peer
SDS_SUBSCRIPTIONS: Final = 100  # active ones per peer
SDS_RATED_PEERS: Final = 10_000  # peers and publishers whose rates are remembered
SDS_QUERY_SECONDS: Final = 10.0  # after which a query has timed out
SDS_SCAN_RECORDS: Final = 200_000  # records one query may look at
SDS_SCAN_PAGE: Final = 500  # records read from the journal at once
SDS_SCAN_BYTES: Final = 8 * MIB  # of them
SDS_SCANS: Final = 4  # answers that are being put together at the same time
SDS_OPEN_REQUESTS: Final = 8  # of one stream that are being answered
SDS_WAITING_REQUESTS: Final = 1_024  # of one stream that wait for an answer

# the relay network
RELAY_TTL_MAX: Final = 86_400  # seconds a message may ask to be cached
RELAY_TTL_DEFAULT: Final = 21_600
RELAY_MESSAGE_BYTES: Final = 98_304  # of one message, by default
RELAY_MESSAGE_MAX: Final = 1_000_000  # of one message, whatever the settings say: its raw bytes stay inline
RELAY_CLOCK_SKEW: Final = 60 * SECOND  # how far ahead of ours a server's or client's clock may run
RELAY_TOKEN_BYTES: Final = 4 * KIB
RELAY_TOKEN_SECONDS: Final = 7 * 86_400  # the longest life a client's token may have
RELAY_REQUEST_BYTES: Final = 2 * MIB  # one request of a client; a larger one ends its connection
RELAY_BATCH: Final = 500  # topics or messages in one batch request
RELAY_FETCH_MESSAGES: Final = 500  # messages one fetch answers with
RELAY_FETCH_BYTES: Final = MIB
RELAY_CONNECTIONS: Final = 10_000
RELAY_CONNECTIONS_PER_ADDRESS: Final = 1_000
RELAY_CONNECTIONS_PER_CLIENT: Final = 8
RELAY_TOPICS_PER_CLIENT: Final = 5_000
RELAY_SUBSCRIPTIONS: Final = 1_000_000  # client and topic pairs a server remembers
RELAY_SUBSCRIPTION_SECONDS: Final = 86_400  # how long a subscription outlives its client's connection
RELAY_CACHED_MESSAGES: Final = 1_000_000
RELAY_TOPIC_MESSAGES: Final = 10_000
RELAY_TOPIC_BYTES: Final = 16 * MIB  # cached per topic
RELAY_LINK_BYTES: Final = 1_024 * MIB  # cached by way of one neighbour
RELAY_REQUESTS_PER_SECOND: Final = 200.0
RELAY_REQUEST_BURST: Final = 1_000
RELAY_STRIKES: Final = 1_000  # refused requests after which a connection is ended
RELAY_WINDOW: Final = 256  # deliveries one connection may leave unacknowledged
RELAY_WINDOW_BYTES: Final = 4 * MIB  # of them
RELAY_RESEND_SECONDS: Final = 30
RELAY_RESENDS: Final = 3
RELAY_IN_FLIGHT: Final = 256  # requests of one connection that wait for their commit; then it is not read
RELAY_UNSENT_BYTES: Final = MIB  # waiting for one slow reader; then it is not read
RELAY_BACKLOG_BYTES: Final = 64 * MIB  # waiting to be committed; beyond it no socket is read
RELAY_BATCH_RECORDS: Final = 512  # messages committed at once
RELAY_LINKS: Final = 64
RELAY_LINK_WINDOW: Final = 1_024  # messages one link may leave unconfirmed
RELAY_LINK_WINDOW_BYTES: Final = 8 * MIB  # of them
RELAY_SERVERS: Final = 256  # in one federation
RELAY_INTEREST: Final = 500_000  # topics believed by way of one link
RELAY_INTEREST_PART: Final = 1_000  # topics in one control message
RELAY_WEBHOOKS: Final = 10_000
RELAY_WEBHOOKS_PER_TOPIC: Final = 10
RELAY_PROMPTS: Final = 10_000  # webhook calls waiting or on their way
RELAY_PROMPT_TRIES: Final = 6
RELAY_CLIENT_BYTES: Final = 64 * MIB  # cached per publishing client
RELAY_CLIENT_QUEUE: Final = 1_024  # messages a RelayClient holds for its user; then it stops reading
RELAY_CLIENT_SEEN: Final = 10_000  # messages a RelayClient remembers, to hand none out twice

# the NDN forwarder
NDN_FACES: Final = 1_024
NDN_FACE_QUEUE_BYTES: Final = 8 * MIB  # waiting for a slow reader; what comes beyond it is dropped and counted
NDN_FACE_MALFORMED: Final = 16  # undecodable packets after which a face is closed
NDN_INTERESTS_PER_SECOND: Final = 50_000  # from one face; more are answered with a Nack
NDN_PIT_ENTRIES: Final = 32_768
NDN_PIT_PER_FACE: Final = 8_192
NDN_LIFETIME_MS: Final = 60_000  # longest an Interest is kept pending, whatever it asks for
NDN_CONTENT_PACKETS: Final = 16_384
NDN_CONTENT_BYTES: Final = 64 * MIB
NDN_CONTENT_SCAN: Final = 16  # cached packets looked at for one Interest that can be a prefix
NDN_DEAD_NONCES: Final = 65_536  # in each of two generations
NDN_DEAD_NONCE_SECONDS: Final = 6.0
NDN_ROUTES: Final = 4_096
NDN_ROUTES_PER_FACE: Final = 1_024
NDN_STRATEGIES: Final = 1_024
NDN_COMMAND_CLOCK_SECONDS: Final = 120  # how far the time of a signed command may be from ours
NDN_COMMAND_SIGNERS: Final = 1_024  # keys and faces whose newest command is remembered
NDN_PARTIALS_PER_FACE: Final = 64  # packets being put together from fragments
NDN_FRAGMENTS: Final = 64  # fragments of one packet
NDN_PARTIAL_SECONDS: Final = 0.5
NDN_UDP_IDLE_SECONDS: Final = 600.0  # after which a UDP face is forgotten
NDN_DATAGRAM_BYTES: Final = 1_400  # larger packets are sent as fragments over UDP
NDN_ENDPOINT_PENDING: Final = 8_192  # questions of one application that wait for an answer
NDN_ENDPOINT_BYTES: Final = 8 * MIB  # packets of one application that wait to be sent; more are dropped and counted

# SVS-PS
SVS_SEQ_MAX: Final = 2**53 - 1  # larger sequence numbers are not believed; other implementations cannot count further
SVS_SEGMENT_BYTES: Final = 8_000  # payload of one packet; larger payloads are segmented
SVS_SEGMENTS: Final = 8_192  # packets of one publication
SVS_PUBLICATION_BYTES: Final = 32 * MIB
SVS_VECTOR_ENTRIES: Final = 1_024  # entries of one state vector that are looked at
SVS_MAPPING_ENTRIES: Final = 256  # entries of one MappingData that are looked at
SVS_MAPPING_BATCH: Final = 10  # sequence numbers in one mapping query
SVS_MAPPING_ANSWER: Final = 64  # sequence numbers of one query that are answered
SVS_EXTRA_BYTES: Final = 1_024  # further blocks of one mapping entry
SVS_NODES: Final = 1_024  # nodes of a group that are kept track of
SVS_JUMP: Final = 1_000  # numbers a vector may run ahead of the newest packet seen before it must be proven
SVS_OWN_JUMP: Final = 1_000_000  # numbers a vector may run ahead of our own newest publication
SVS_PROBES: Final = 32  # such proofs under way
SVS_DISBELIEF_SECONDS: Final = 30.0  # how long a claim that could not be proven is not looked at again
SVS_WINDOW: Final = 64  # Interests of a group under way
SVS_JOBS: Final = 1_024  # publications being fetched
SVS_JOBS_PER_NODE: Final = 256
SVS_JOBS_UNPROVEN: Final = 16  # of them, for nodes that have never answered, and as many for those named in a crowd
SVS_CROWD: Final = 8  # new nodes in one vector from which on they count as a crowd
SVS_REASSEMBLY_BYTES: Final = 64 * MIB  # segments waiting for others; more is fetched only for the oldest publication
SVS_UNDELIVERED: Final = 1_024  # publications the application has not taken yet; then nothing new is fetched
SVS_SUBSCRIPTIONS: Final = 1_024
SVS_HINTS_PER_NODE: Final = 256  # mapping entries that came with sync Interests
SVS_AHEAD: Final = 1_024  # publications of a node fetched before older ones, because their mapping is known
SVS_PIGGYBACK_BYTES: Final = 4_000  # mapping data in one sync Interest
SVS_VECTOR_BYTES: Final = 8_000  # of our own vector in one sync Interest, with its mapping data
SVS_KEPT_BYTES: Final = 32 * MIB  # own packets of a member kept in memory, to answer from
SVS_LOOKUPS: Final = 256  # requests for older ones that wait for the disk

# what is older than the journal keeps
ARCHIVE_PAGE: Final = 4_096  # records read from the lake at once
ARCHIVE_SECONDS: Final = 8.0  # for one such read, after which the asker is told to come again
# Spark as a client of nodes
FEED_BATCH_RECORDS: Final = 100_000  # records of one node that a streaming batch takes, unless told otherwise
PUBLISH_PATIENCE_SECONDS: Final = 60.0  # how long a task waits for a node that is away or has too much to do
# The dashboard
WEB_SATELLITES: Final = 2_000  # followed for the map
WEB_TRACKS: Final = 48  # of those, how many ground tracks are drawn
WEB_CELL_CHARACTERS: Final = 2_000  # of one value in a page of rows; the rest is cut and said to be
WEB_CELL_ITEMS: Final = 100  # of one list or struct in it
WEB_LAG_RECORDS: Final = 100_000  # of each protocol, counted before the page says "or more"
PROPAGATED_ROWS: Final = 65_536  # states computed at once, objects times moments
