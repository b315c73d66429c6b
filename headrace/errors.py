"""Errors by who must act; the class alone decides what happens, and the command turns it into an exit code.

    ReplicationError
    ├── NotConnected                a server cannot be reached, or the connection was lost
    │   ├── LogTaken                    edge: somebody else reads the source's log
    │   │   ├── SlotTaken                   PostgreSQL: a process of the server has the slot
    │   │   └── ServerIdTaken               MariaDB, MySQL: another replica has the server id
    │   └── LogEnded                    MariaDB, MySQL: the part of the binlog that is read again ends
    ├── Retryable                   the step failed and will be done again
    │   ├── NoSpace                      the disk takes nothing now
    │   ├── CheckpointChanged           edge: another checkpoint is right, as after a failover
    │   ├── NotOwner, OldGeneration     bridge: the source, or the group, has another owner or generation
    │   ├── PartitionsFailed            bridge: Kafka refuses some partitions of a transaction
    │   └── Conflict                    lake: another process committed first
    ├── NeedsOperator               going on could lose or repeat changes
    │   ├── ConfigurationError          the file or the command line is wrong
    │   ├── NoEvent                     MariaDB, MySQL: no event begins at a place of the binlog
    │   ├── NoTopic, InstanceFenced     bridge: a topic is missing; another process has the instance's name
    │   ├── ForeignOffset               bridge: another tool has committed for the bridges' group
    │   └── Incompatible                lake: a column changed in a way that the table cannot follow
    ├── CorruptInput                bytes that cannot be what they claim to be
    └── Fenced                      bridge: a producer that is of no more use; its lane makes another

| class | who must act | what happens | exit code |
|---|---|---|---|
| NotConnected | the loop | connects again after a jittered pause, without limit | 5, of a command that does not loop |
| LogTaken | the loop, then a person | as NotConnected; NeedsOperator when it lasts longer than 15 s | 3 |
| Retryable | the loop | does the same step again after a jittered pause | 5, as above |
| NoSpace | the loop | goes on without writing, confirms nothing that is not durable, and writes again later | 5, as above |
| CheckpointChanged | the loop | writes the new checkpoint and opens the session again | |
| NeedsOperator | a person | stops; the hint has what to run; nothing was skipped or confirmed | 3 |
| ConfigurationError | a person | stops before anything was done | 2 |
| CorruptInput | nobody can pass it | stops, or replaces it by a dead letter, by policy | 4 |
| NotOwner, OldGeneration, PartitionsFailed, Fenced | the bridge | aborts the transaction, releases its deliveries | |
| Conflict | the load | reads what the other committed, and tries again | 5 |
| any other exception | the developers | stops: a defect | 70 |

In a snapshot's thread the same classes concern one table alone: NeedsOperator ends its snapshot, and the stream goes on.

Messages and hints never hold row values or secrets. Exit code 1 is no error's: it means that the answer is no.
"""

from typing import Final, Self

#: Exit code of a command that ends with an error that nobody expected, a defect: "internal software error" of sysexits.h.
UNEXPECTED: Final = 70


class ReplicationError(Exception):
    """A change could not be carried on."""

    #: Exit code of a command that ends with this error.
    exit_code = UNEXPECTED
    #: Whether it may be of what a log holds, so that passing over that helps; not of a server, or of a disk.
    is_of_content = True

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (self.__doc__ or "").strip()
        #: What to do about it, one or two sentences; empty when the loop does it.
        self.hint = hint
        super().__init__(self.message)

    def not_of_content(self) -> Self:
        """Return the error, as one that no content of a log is to blame for."""
        self.is_of_content = False
        return self


class NotConnected(ReplicationError):  # noqa: N818 - a state, which reads best without a suffix.
    """A server cannot be reached, or the connection to it was lost."""

    exit_code = 5


class Retryable(ReplicationError):  # noqa: N818 - as above.
    """The step failed and will be done again."""

    exit_code = 5


class NoSpace(Retryable):
    """The disk takes nothing now: it is full, a limit is reached, or it fails in a way that may pass."""


class NeedsOperator(ReplicationError):  # noqa: N818 - as above.
    """A person has to decide: going on by itself could lose or repeat changes."""

    exit_code = 3


class ConfigurationError(NeedsOperator):
    """The configuration or the command line is wrong."""

    exit_code = 2


class CorruptInput(ReplicationError):  # noqa: N818 - as above.
    """Bytes that cannot be what they claim to be."""

    exit_code = 4
