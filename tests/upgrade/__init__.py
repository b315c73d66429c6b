"""A running pipeline, upgraded from the previous release and taken back, part by part (`make test-upgrade`)."""
