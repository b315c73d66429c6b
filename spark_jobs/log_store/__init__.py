"""The log stores by which several processes commit to one table, on files and on S3, and which one a lake has."""
