"""A lake on an S3 server. Run by `make test-object-store` alone, which fetches what it needs."""
