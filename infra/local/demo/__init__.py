"""The main job on this machine, from two databases to answers in Spark SQL: `headrace demo`."""
