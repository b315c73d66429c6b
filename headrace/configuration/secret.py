"""Secrets by reference: `env:NAME`, `file:PATH` or `command:PROGRAM …`, followed when they are needed and never printed."""

import os
from pathlib import Path

from headrace.configuration.secret_command import SecretCommand
from headrace.errors import ConfigurationError


class Secret:
    """A reference to a secret. Its text forms show the reference, never the secret; of a command only the program."""

    def __init__(self, reference: str, folder: Path | None = None) -> None:
        """Take a reference; a relative file is looked for in the folder, or where the process runs when there is none."""
        kind, _, name = reference.partition(":")
        if kind not in {"env", "file", "command"} or not name:
            raise ValueError(
                "a secret is given as 'env:NAME', 'file:PATH' or 'command:PROGRAM ARGUMENTS', never in the file itself"
            )
        self._kind = kind
        self._name = name
        self._folder = folder or Path()
        #: What prints it; None for one that is read.
        self.command = SecretCommand(name, self._folder) if kind == "command" else None

    def __repr__(self) -> str:
        """Show the reference."""
        return f"Secret({self.reference})"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same reference."""
        return isinstance(other, Secret) and (self._kind, self._name) == (other._kind, other._name)

    def __hash__(self) -> int:
        """Hash the reference."""
        return hash((self._kind, self._name))

    @property
    def reference(self) -> str:
        """The reference, as the file has it; a command without its arguments."""
        return f"command:{self.command.name}" if self.command is not None else f"{self._kind}:{self._name}"

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """What changes whenever the file does; None for what is in none, or is not there."""
        try:
            found = (self._folder / self._name).stat() if self._kind == "file" else None
        except OSError:
            return None
        return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)

    def reveal(self) -> str:
        """Return the secret as it is now.

        Raises ConfigurationError when the reference leads nowhere, and NotConnected when a command fails or takes too long.
        """
        if self.command is not None:
            return self.command.value()
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

    def expire(self) -> None:
        """Have a command run again the next time."""
        if self.command is not None:
            self.command.expire()
