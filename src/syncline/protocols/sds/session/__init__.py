"""The conversation on a stream, sans-I/O: frames and times in, actions out.

The side that opened the stream asks (`Requester`), the other answers (`Responder`). Both say hello first. Records are
read through `Scan` objects that say what they want to read next; who reads, sends and waits is the service.
"""

from syncline.protocols.sds.session.actions import (
    Action,
    Blame,
    Close,
    Pushed,
    Refused,
    Replied,
    Send,
    Serve,
    Store,
    Unsubscribed,
)
from syncline.protocols.sds.session.feed import Feed
from syncline.protocols.sds.session.greeting import greeting
from syncline.protocols.sds.session.query import QueryScan
from syncline.protocols.sds.session.quotas import Quotas
from syncline.protocols.sds.session.requester import Requester
from syncline.protocols.sds.session.responder import Responder
from syncline.protocols.sds.session.scan import Older, Scan
from syncline.protocols.sds.session.sync import SyncScan

__all__ = [
    "Action",
    "Blame",
    "Close",
    "Feed",
    "Older",
    "Pushed",
    "QueryScan",
    "Quotas",
    "Refused",
    "Replied",
    "Requester",
    "Responder",
    "Scan",
    "Send",
    "Serve",
    "Store",
    "SyncScan",
    "Unsubscribed",
    "greeting",
]
