"""Opens the doors of the server: Spark Connect and Thrift, with the users, limits, certificate and audit of the lake's file."""

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.sections import Serve
from headrace.errors import ConfigurationError, NeedsOperator

#: Minutes after which Hive closes what its client has left.
_IDLE_MINUTES = 60


def open_doors(spark: SparkSession, lake: LakeFile) -> tuple[int, int]:
    """Listen, and return the ports of Spark Connect and Thrift; raise NeedsOperator where that cannot be."""
    serve, java = lake.serve, spark._jvm.headrace.serve  # noqa: SLF001 - PySpark offers no other way.
    for file in (serve.users, serve.certificate, serve.key):
        if file is not None and not file.is_file():
            raise ConfigurationError(f"[serve] names {file}, which is no file")
    queries = java.Queries(serve.queries, serve.rows, serve.seconds, _text(serve.audit))
    users = java.Users(_text(serve.users))
    host, _, port = serve.connect.rpartition(":")
    session = spark._jsparkSession  # noqa: SLF001 - as above.
    try:
        connect = java.ConnectDoor.start(
            session, queries, users, host, int(port), _text(serve.certificate), _text(serve.key)
        )
        java.ThriftDoor.start(session, queries, users, _thrift_settings(spark, serve))
    except Py4JError as error:
        raise NeedsOperator(
            f"the server cannot listen on {serve.connect} and {serve.thrift}, or cannot read its certificate: "
            f"{_reason(error)}",
            hint="See [serve] in the lake's file: another process may listen there; a key is a PEM file in PKCS #8.",
        ) from error
    return int(connect), int(serve.thrift.rpartition(":")[2])


def _text(file: Path | None) -> str:
    return "" if file is None else str(file)


def _reason(error: Py4JError) -> str:
    """Return the class and text of the innermost reason."""
    reason = getattr(error, "java_exception", None)
    while reason is not None and reason.getCause() is not None:
        reason = reason.getCause()
    return type(error).__name__ if reason is None else str(reason.toString())


def _thrift_settings(spark: SparkSession, serve: Serve) -> dict[str, str]:
    """Return Hive's settings; what Hive writes is in a folder that goes with the process."""
    host, _, port = serve.thrift.rpartition(":")
    # The temporary folder of the JVM is its own; the machine's may hold another user's.
    jvm: Any = spark._jvm  # noqa: SLF001 - as above.
    scratch = Path(jvm.java.lang.System.getProperty("java.io.tmpdir"), "hive")
    settings = {
        "hive.server2.thrift.bind.host": host,
        "hive.server2.thrift.port": port,
        "hive.server2.transport.mode": "binary",
        "hive.server2.enable.doAs": "false",
        "hive.server2.logging.operation.enabled": "false",
        "hive.server2.async.exec.threads": str(serve.queries),
        "hive.server2.idle.session.timeout": f"{_IDLE_MINUTES}m",
        "hive.server2.idle.operation.timeout": f"{_IDLE_MINUTES}m",
        "hive.exec.scratchdir": str(scratch),
        "hive.exec.local.scratchdir": str(scratch),
        "hive.downloaded.resources.dir": f"{scratch}/resources",
        "hive.querylog.location": str(scratch),
        # What a connection brings is no text in which the server's environment is named.
        "hive.variable.substitute": "false",
        "hive.server2.authentication": "NONE",
        # Hive asks nobody who may list names, and looks for no metastore: it would make one in the working directory.
        "hive.security.authorization.manager": "org.apache.hadoop.hive.ql.security.authorization.plugin.fallback"
        ".FallbackHiveAuthorizerFactory",
        "hive.internal.ss.authz.settings.applied.marker": "true",
        "hive.metastore.uris": "thrift://localhost:0",
        "hive.metastore.connect.retries": "1",
        "hive.metastore.failure.retries": "0",
        "hive.metastore.client.connect.retry.delay": "0s",
    }
    if serve.users is not None:
        settings["hive.server2.authentication"] = "CUSTOM"
        settings["hive.server2.custom.authentication.class"] = "headrace.serve.Users$Passwords"
    if serve.certificate is not None:
        store = jvm.headrace.serve.Certificates.keyStore(str(serve.certificate), str(serve.key))
        settings["hive.server2.use.SSL"] = "true"
        settings["hive.server2.keystore.path"] = store.path()
        settings["hive.server2.keystore.password"] = store.password()
    return settings
