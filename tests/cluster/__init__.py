"""A lake on a Spark cluster whose executors share no disk with the driver but the root. Run by `make test-cluster`."""
