"""The conversation in a group without I/O: state vector sync, fetching, subscriptions."""

from syncline.protocols.svs.session.conversation import Session
from syncline.protocols.svs.session.events import (
    Action,
    Announce,
    Ask,
    Deliver,
    Failure,
    Judge,
    Options,
    Publication,
    Skipped,
)

__all__ = [
    "Action",
    "Announce",
    "Ask",
    "Deliver",
    "Failure",
    "Judge",
    "Options",
    "Publication",
    "Session",
    "Skipped",
]
