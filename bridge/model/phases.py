"""What a source of the bridge's file and its session are in, and what may follow: nothing else is entered.

A source, as people see it. From each phase it may be assigned to this bridge, which STARTING begins, or taken from it:

    ELSEWHERE ◀──▶ NOT_SERVED, STOPPED        STARTING ──▶ SERVING ◀──▶ GAP
        │ assigned   ▲ taken                      │         │  ▲         │
        └────────────┴──────────────────────▶     └─▶ WAITING, NEEDS_OPERATOR

A session of a source that this bridge serves:

    IDLE ──▶ READY ──▶ HELD ──▶ IDLE
      │        │         └────▶ LEAVING
      └────────┴──▶ OVER ◀─────────┘
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto


class SourcePhase(StrEnum):
    """What a source is in; the text is the state that is shown."""

    #: Nothing is known yet: who has it, or, where it is this bridge's, its position.
    STARTING = "starting"
    #: Its session takes what its edge sends.
    SERVING = "serving"
    #: Another bridge has it.
    ELSEWHERE = "elsewhere"
    #: No bridge of the group has it.
    NOT_SERVED = "not served"
    #: As SERVING, and something before what its edge sends is missing.
    GAP = "gap"
    #: An error keeps it from being served; it is tried again, and shown until something is committed where that could not be.
    WAITING = "waiting for Kafka"
    NEEDS_OPERATOR = "needs an operator"
    STOPPED = "stopped"


class SessionPhase(Enum):
    """Where a session is."""

    #: It has nothing to commit.
    IDLE = auto()
    #: It is in the ready queue.
    READY = auto()
    #: A lane has it.
    HELD = auto()
    #: It has ended, and a lane still has it.
    LEAVING = auto()
    OVER = auto()


_AWAY = {SourcePhase.ELSEWHERE, SourcePhase.NOT_SERVED, SourcePhase.STOPPED, SourcePhase.WAITING, SourcePhase.STARTING}
_FAILED = {SourcePhase.WAITING, SourcePhase.NEEDS_OPERATOR}
NEXT_OF_SOURCE: Mapping[SourcePhase, set[SourcePhase]] = {
    SourcePhase.STARTING: _AWAY | _FAILED | {SourcePhase.SERVING},
    SourcePhase.ELSEWHERE: _AWAY,
    SourcePhase.NOT_SERVED: _AWAY,
    SourcePhase.STOPPED: _AWAY,
} | dict.fromkeys(
    (SourcePhase.SERVING, SourcePhase.GAP, *_FAILED), _AWAY | _FAILED | {SourcePhase.SERVING, SourcePhase.GAP}
)
NEXT_OF_SESSION: Mapping[SessionPhase, set[SessionPhase]] = {
    SessionPhase.IDLE: {SessionPhase.READY, SessionPhase.OVER},
    SessionPhase.READY: {SessionPhase.HELD, SessionPhase.OVER},
    SessionPhase.HELD: {SessionPhase.IDLE, SessionPhase.LEAVING},
    SessionPhase.LEAVING: {SessionPhase.OVER},
    SessionPhase.OVER: set(),
}
