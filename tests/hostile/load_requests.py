"""What must not be taken for a request for a load (spark_jobs/serve/load_door.py)."""

#: Bytes that are sent, after which the sender waits for an answer.
REQUESTS = [
    b"",
    b"\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00" * 64 + b"\n",
    b"\xff\xfe{}\n",
    b"null\n",
    b"[]\n",
    b"{}\n",
    b'{"config": "lake.toml", "stream": 5}\n',
    b'{"config": "lake.toml", "stream": "bank", "only": "gold"}\n',
    b'{"config": "lake.toml", "stream": "bank", "more": 1}\n',
    b'{"config": "lake.toml", "stream": "bank"}{"config": "x", "stream": "y"}\n',
    b'{"config": "' + b"x" * 5000 + b'", "stream": "bank"}\n',
    b"[" * 4000 + b"\n",
    b'{"config": "lake.toml", "stream": "bank"',
    b"x" * 100_000,
]
