"""What the lake's file sets of Hadoop's S3 client, as `deltalake` takes it: so one file is enough for both. Pure.

Called by the console, and by a load that looks at tables' logs before it starts Spark.

Credentials are taken from the process's environment, or a role of the machine, unless the file has them; a credential provider
of Hadoop (a JCEKS file, a class) is for Spark alone.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

_S3 = frozenset({"s3", "s3a", "s3n"})
_HADOOP = "spark.hadoop.fs.s3a."
#: Names that the two use for the same.
_NAMES = {
    "endpoint.region": "aws_region",
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
}


def options(root: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options for a root, by [spark.settings] of the lake's file; settings of its bucket go first."""
    parts = urlsplit(root)
    if not is_s3(root):
        return {}

    def given(name: str) -> str:
        return settings.get(f"{_HADOOP}bucket.{parts.netloc}.{name}") or settings.get(f"{_HADOOP}{name}") or ""

    found = {ours: given(name) for name, ours in _NAMES.items() if given(name)}
    plain = given("connection.ssl.enabled").lower() == "false"
    if endpoint := given("endpoint"):
        scheme = "" if "://" in endpoint else "http://" if plain else "https://"
        found["aws_endpoint"] = f"{scheme}{endpoint}"
        found["aws_virtual_hosted_style_request"] = "false"
        if found["aws_endpoint"].startswith("http://"):
            found["aws_allow_http"] = "true"
    return found


def is_remote(root: str) -> bool:
    """Whether a root is on an object store."""
    return urlsplit(root).scheme not in {"", "file"}


def is_s3(root: str) -> bool:
    """Whether a root is on S3, or on a server of its protocol."""
    return urlsplit(root).scheme in _S3
