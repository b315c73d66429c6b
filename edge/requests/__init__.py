"""Requests from headquarters to this edge: received on its one connection, checked, handled, answered (docs/requests.md)."""
