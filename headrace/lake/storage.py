"""Files under a lake's root: a folder of this machine, or an object store that `deltalake` knows.

`s3://` (and `s3a://`), `gs://`, `abfss://` and `az://` are read with the credentials of this process's environment, or a role
of the machine, and, for S3, what the lake's file sets of Hadoop's client, as `deltalake` takes it: so one file is enough for
both. A credential provider of Hadoop (a JCEKS file, a class) is for Spark alone. HDFS is not supported.

Called here, by the console, and by a load that looks at tables' logs before it starts Spark.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.configuration.lake import local_path
from headrace.errors import NeedsOperator, NotConnected

if TYPE_CHECKING:
    from pyarrow import NativeFile


_S3 = frozenset({"s3", "s3a", "s3n"})
_HADOOP = "spark.hadoop.fs.s3a."
#: Names that the two use for the same.
_NAMES = {
    "endpoint.region": "aws_region",
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
}


def store_options(root: str, settings: Mapping[str, str]) -> dict[str, str]:
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


#: What Spark calls a store, and what `deltalake` does.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_KNOWN = {"", "file", "s3", "gs", "abfss", "abfs", "az", "adl"}


def location(root: str) -> str:
    """Return the root as `deltalake` takes it; raise NotConnected for a file system that it does not know."""
    parts = urlsplit(root)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    if scheme not in _KNOWN:
        raise NotConnected(
            f"{root}: a lake on {parts.scheme}:// cannot be read without Spark",
            hint="Without Spark a lake is read in folders of this machine, on S3, Google Cloud Storage and Azure.",
        )
    if scheme in {"", "file"}:
        return local_path(root)
    return parts._replace(scheme=scheme).geturl().rstrip("/")


class Storage:
    """Reads files by their paths under the root. Raises NotConnected where a store does not answer."""

    def __init__(self, root: str, settings: Mapping[str, str]) -> None:
        """Take the lake's root, and [spark.settings] of its file."""
        self.root = location(root)
        try:
            from pyarrow import fs  # noqa: PLC0415 - an extra.

            if not is_remote(root):
                self._system: Any = fs.SubTreeFileSystem(str(Path(self.root)), fs.LocalFileSystem())
            else:
                from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - as above.

                options = store_options(root, settings)
                self._system = fs.PyFileSystem(DeltaStorageHandler(self.root, options))
        except ModuleNotFoundError as error:
            raise NeedsOperator(
                f"the package {error.name} is not installed", hint="Install Headrace with the extra 'reader'."
            ) from error
        self._selector, self._file = fs.FileSelector, fs.FileType.File

    def names(self, folder: str) -> list[str]:
        """Return the names of files in a folder; empty when there is no such folder."""
        try:
            found = self._system.get_file_info(self._selector(folder, allow_not_found=True))
        except OSError as error:
            raise self._unreadable(folder, error) from error
        return [each.base_name for each in found if each.type == self._file]

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            return bool(self._system.get_file_info(path).type == self._file)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def read(self, path: str) -> bytes:
        """Return a file's bytes; raise FileNotFoundError when there is no such file."""
        with self.opened(path) as file:
            return bytes(file.read())

    def opened(self, path: str) -> "NativeFile":
        """Return a file to read from at any place; raise FileNotFoundError when there is none."""
        try:
            return self._system.open_input_file(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: str, error: OSError) -> NotConnected:
        return NotConnected(
            f"{self.root}/{path} cannot be read: {str(error).splitlines()[0][:300]}",
            hint="An object store is read with the credentials of this process's environment, or those that [spark.settings] of "
            "the lake's file has for S3.",
        )
