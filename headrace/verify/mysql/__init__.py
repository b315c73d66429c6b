"""Sources of MariaDB and MySQL."""
