"""Certificates: a private authority for tests and trials, what the files in use are worth, and why a handshake failed."""
