"""Bytes that releases wrote, one folder each, which later releases read (design decision 18).

`make.py` wrote them; nobody edits or replaces them. `reading.py` finds them for tests.
"""
