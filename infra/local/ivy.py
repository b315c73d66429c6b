"""Resolves groups of jars with the Ivy that PySpark carries, so that Java and Python are all a machine needs.

Guarantees a clear reason when jars cannot be obtained. Assumes Ivy's usual repository, unless HEADRACE_IVY_SETTINGS names an
Ivy settings file. Used by infra/local/jars.py.
"""

import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.errors import NeedsOperator, NotConnected, ReplicationError
from headrace.terminal import Terminal, styled

_UNREACHABLE = re.compile(
    r"UnknownHost|Host .* not found|Connection (refused|timed out|reset)|SERVER ERROR|timed out|No route to host|"
    r"NoRouteToHost|SSLHandshake|Temporary failure|Network is unreachable",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Jars that share one class path, and so are resolved together."""

    name: str
    #: Maven coordinates, `organisation:module:revision`.
    pins: tuple[str, ...]
    #: Coordinates that replace whatever revision the pins would bring.
    overrides: tuple[str, ...] = ()
    #: Whether the jars join PySpark's own, of which they must then repeat none.
    beside_spark: bool = False
    #: `organisation:module` of what is not wanted.
    excluded: tuple[str, ...] = ()
    #: What the files are. Anything but a jar is taken alone, without its dependencies.
    extension: str = "jar"
    #: Whether the jars are taken alone too: the pins are all that is wanted.
    alone: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether nothing is fetched but the pins."""
        return self.alone or self.extension != "jar"


def resolve(group: Group, into: Path, cache: Path, console: Terminal) -> None:
    """Put the group's jars and all that they need into the folder.

    Raises NotConnected if the repository cannot be reached, NeedsOperator if a jar cannot be obtained.
    """
    request = into / "ivy.xml"
    request.write_text(_ivy_file(group))
    command = ["java", "-jar", str(_ivy_jar()), "-cache", str(cache), "-ivy", str(request), "-confs", "default"]
    # OSGi bundles (Snappy among them) are jars by another name; sources and documentation are other types.
    command += ["-types", "jar", "bundle"] if group.extension == "jar" else ["-types", group.extension]
    command += ["-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    plain = into / "ivysettings.xml"
    if settings := os.environ.get("HEADRACE_IVY_SETTINGS"):
        command += ["-settings", settings]
    elif group.is_alone:
        plain.write_text(_WITHOUT_DESCRIPTIONS)
        command += ["-settings", str(plain)]
    try:
        code, output = _run(command, console, group.name)
    except FileNotFoundError:
        raise NeedsOperator("There is no java on PATH.", hint="Install Java 17.") from None
    request.unlink()
    plain.unlink(missing_ok=True)
    if code != 0:
        raise _failure(group, output)


def _run(command: list[str], console: Terminal, name: str) -> tuple[int, str]:
    output: list[str] = []
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
        console.status(styled("jars/{}: resolving", name)) as status,
    ):
        assert ivy.stdout is not None
        for line in ivy.stdout:
            output.append(line)
            if match := re.search(r"(?:SUCCESSFUL \]|found) \S+#(\S+?)(?:!| in|$)", line):
                status.update(styled("jars/{}: {}", name, match[1]))
    return ivy.returncode, "".join(output)


def _failure(group: Group, output: str) -> ReplicationError:
    missing = sorted(set(re.findall(r":: (?!headrace#)([^\s:]+#[^\s:]+;[^\s:!]+)", output)))
    what = ", ".join(missing) or ", ".join(group.pins)
    if _UNREACHABLE.search(output):
        return NotConnected(
            f"The {group.name} jars cannot be fetched: the Maven repository cannot be reached ({what}).",
            hint="Check the network and run make setup again: it goes on with what is missing. Behind a proxy set "
            "JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT; for a mirror name an Ivy settings "
            "file in HEADRACE_IVY_SETTINGS.",
        )
    return NeedsOperator(
        f"The {group.name} jars cannot be fetched: not found or not usable: {what}.",
        hint="Check the pins in infra/local/jars.py, and the repository in HEADRACE_IVY_SETTINGS if it is set.",
    )


def _ivy_file(group: Group) -> str:
    def attributes(coordinates: str, *names: str) -> str:
        return " ".join(f"{name}={quoteattr(part)}" for name, part in zip(names, coordinates.split(":"), strict=True))

    excluded = [*group.excluded, *(f"*:{name}" for name in (_list_spark_modules() if group.beside_spark else []))]
    return "\n".join(
        [
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
            f'<info organisation="headrace" module="{group.name}"/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>",
            *(
                f'<dependency {attributes(it, "org", "name", "rev")} conf="default->master,runtime"/>'
                if not group.is_alone
                else _alone(it, group.extension)
                for it in group.pins
            ),
            *(f"<exclude {attributes(it, 'org', 'module')}/>" for it in excluded),
            *(f"<override {attributes(it, 'org', 'module', 'rev')}/>" for it in group.overrides),
            "</dependencies>",
            "</ivy-module>",
        ],
    )


#: A description may name a parent that Ivy cannot read; a file that is taken alone needs none.
_WITHOUT_DESCRIPTIONS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def _alone(coordinates: str, extension: str) -> str:
    """Return the dependency on one file, `organisation:module:revision[:classifier]`."""
    organisation, module, revision, *classifier = coordinates.split(":")
    classified = f' m:classifier="{classifier[0]}"' if classifier else ""
    return (
        f'<dependency org="{organisation}" name="{module}" rev="{revision}" transitive="false" conf="default->*">'
        f'<artifact name="{module}" type="{extension}" ext="{extension}"{classified}/></dependency>'
    )


def _list_spark_modules() -> list[str]:
    names = (re.sub(r"-\d[\w.]*(-.*)?$", "", jar.stem) for jar in _pyspark_jars().glob("*.jar"))
    return sorted(set(names))


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NeedsOperator("PySpark is not installed.", hint="Run make setup.")
    return Path(spec.origin).parent / "jars"


def _ivy_jar() -> Path:
    jars = sorted(_pyspark_jars().glob("ivy-*.jar"))
    if not jars:
        raise NeedsOperator(f"There is no Ivy in {_pyspark_jars()}.", hint="Run make setup.")
    return jars[-1]
