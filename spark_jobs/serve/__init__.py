"""The server of `headrace lake serve`: Spark Connect and JDBC, on what is published. The Java classes are what clients meet."""
