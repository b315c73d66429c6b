"""Secrets by reference: `env:NAME` or `file:PATH`, read when they are needed and never printed."""

import os
from pathlib import Path

from headrace.errors import ConfigurationError


class Secret:
    """A reference to a secret. Its text forms show the reference, never the secret."""

    def __init__(self, reference: str, folder: Path | None = None) -> None:
        """Take a reference; a relative file is looked for in the folder, or where the process runs when there is none."""
        kind, _, name = reference.partition(":")
        if kind not in {"env", "file"} or not name:
            raise ValueError("a secret is given as 'env:NAME' or 'file:PATH', never in the file itself")
        self._kind = kind
        self._name = name
        self._folder = folder or Path()

    def __repr__(self) -> str:
        """Show the reference."""
        return f"Secret({self._kind}:{self._name})"

    @property
    def reference(self) -> str:
        """The reference, as the file has it."""
        return f"{self._kind}:{self._name}"

    def reveal(self) -> str:
        """Return the secret as it is now; raise ConfigurationError when the reference leads nowhere."""
        if self._kind == "env":
            if self._name not in os.environ:
                raise ConfigurationError(
                    f"environment variable {self._name} is not set",
                    hint=f"Set {self._name}, or name another reference.",
                )
            return os.environ[self._name]
        try:
            return (self._folder / self._name).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(
                f"secret file {self._folder / self._name} cannot be read: {error.strerror}"
            ) from error
