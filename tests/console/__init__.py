"""The console in a real browser, over a real bridge, Kafka, databases and lake: `make test-console`; not part of `make test`."""
