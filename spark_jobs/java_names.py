"""Names of Java classes and methods are looked up in the JVM once.

PySpark looks them up again for each column that it makes, with two questions besides the call, for each of which the JVM searches
every jar of its class path, once for each package that might have it. Called by session.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


def remember() -> None:
    """Let Py4J keep the packages, classes and static methods that it has looked up. Done again it changes nothing."""
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _look_up_once(kind.__getattr__)


def _look_up_once(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @wraps(look_up)
    def remembering(parent: Any, name: str) -> Any:
        member = look_up(parent, name)
        # To the JVM a name that it does not know is a package; a class may have it once it is imported. A field may change.
        if isinstance(member, JavaClass | JavaMember) or (isinstance(member, JavaPackage) and name.islower()):
            vars(parent)[name] = member
        return member

    return remembering
