"""The durable journal: every arrival with its verdict, and what protocols must not forget, in one file.

Knows no protocol and no network. The lake reads what is sealed from here, never the file itself.
"""

from syncline.journal.store import Journal

__all__ = ["Journal"]
