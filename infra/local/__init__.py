"""The embedded stack: real servers from packages, on free ports, in one folder."""
