"""Sources that Debezium reads: its engine as a child process behind the edge (docs/debezium.md). Experimental."""
