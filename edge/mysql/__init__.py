"""MariaDB and MySQL as sources: the binlog over the replication protocol, from packets to records."""
