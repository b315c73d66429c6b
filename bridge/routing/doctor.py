"""What `headrace bridge doctor` looks at of the schema registry. Called by bridge/doctor.py."""

from collections.abc import Iterator

from headrace.configuration.sections import Registry
from headrace.findings import Finding
from headrace.registry.client import RegistryClient


def registry(section: Registry) -> Iterator[Finding]:
    """Yield that it answers and takes the login; raises errors as the client does."""
    rule = RegistryClient(section).compatibility()
    yield Finding("registry", "ok", f"{section.url} answers; its rule for subjects without one of their own is {rule}")
