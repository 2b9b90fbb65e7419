"""The SDSP conversation without I/O: what a publisher sends, and what a subscriber makes of what it gets.

Drivers move bytes, keep time and store things; they feed these sessions and do what they ask.
"""

from syncline.protocols.sdsp.session.events import (
    Action,
    AskHistory,
    DataFailed,
    DataLoaded,
    Emit,
    Error,
    Event,
    Fork,
    FrameReceived,
    Frozen,
    HistoryAnswered,
    HistoryFailed,
    LoadData,
    Ready,
    Resynced,
    Stale,
    TimerFired,
    Update,
    UserEvent,
)
from syncline.protocols.sdsp.session.publisher import Draft, Head, Policy, PublisherSession, new_uid
from syncline.protocols.sdsp.session.subscriber import Following, SubscriberSession

__all__ = [
    "Action",
    "AskHistory",
    "DataFailed",
    "DataLoaded",
    "Draft",
    "Emit",
    "Error",
    "Event",
    "Following",
    "Fork",
    "FrameReceived",
    "Frozen",
    "Head",
    "HistoryAnswered",
    "HistoryFailed",
    "LoadData",
    "Policy",
    "PublisherSession",
    "Ready",
    "Resynced",
    "Stale",
    "SubscriberSession",
    "TimerFired",
    "Update",
    "UserEvent",
    "new_uid",
]
