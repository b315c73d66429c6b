"""The lake: Kafka into bronze, bronze into silver, and questions in SQL, with PySpark and Delta."""
