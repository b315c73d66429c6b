"""What all stand-ins of a run work on: its scheduler, and what can be polled. Set for each run by `begin`."""

from typing import TYPE_CHECKING, Any

from tests.simulation.scheduler import Scheduler

if TYPE_CHECKING:
    from tests.simulation.polling import Pipe


class World:
    """What the stand-ins work on now."""

    scheduler: Scheduler
    #: What can be waited on by poll, by number.
    readable: dict[int, "Pipe"]
    #: What `threading.local` holds outside any task.
    outside: dict[int, dict[str, Any]]


world = World()


def begin(scheduler: Scheduler) -> None:
    """Let the stand-ins work on this run."""
    world.scheduler = scheduler
    world.readable = {}
    world.outside = {}
