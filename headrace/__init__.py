"""What every part of Headrace shares: positions, the batch on the wire, configuration, errors, the command."""

__version__ = "0.2.0"
