"""Servers that set-up does not fetch, and tests on them (`make test-servers`)."""
