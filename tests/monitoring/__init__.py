"""Alert rules and dashboard in a real Prometheus: `make test-monitoring`; not part of `make test`."""
