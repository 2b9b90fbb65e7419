"""The durable journal: every arrival with its verdict, and what protocols must not forget, in one file.

Knows no protocol and no network. The lake reads what is sealed from here, never the file itself.
"""

from syncline.journal.blobs import BlobStore, LocalBlobs, ObjectBlobs
from syncline.journal.segments import Drainer
from syncline.journal.store import Journal
from syncline.journal.targets import LocalTarget, ObjectTarget, SegmentTarget, target_of

__all__ = [
    "BlobStore",
    "Drainer",
    "Journal",
    "LocalBlobs",
    "LocalTarget",
    "ObjectBlobs",
    "ObjectTarget",
    "SegmentTarget",
    "target_of",
]
