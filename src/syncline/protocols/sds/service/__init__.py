"""SDS exchange in a running node: gossip and streams of the libp2p host, the sink, and the API for programs.

Thin drivers: what is said is decided in `session`, what is good in `rules`.
"""

from syncline.protocols.sds.service.asking import Found
from syncline.protocols.sds.service.catchup import Caught
from syncline.protocols.sds.service.questions import Where
from syncline.protocols.sds.service.service import SdsService
from syncline.protocols.sds.service.taken import Following, Taken

__all__ = ["Caught", "Following", "Found", "SdsService", "Taken", "Where"]
