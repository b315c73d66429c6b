"""`headrace lake serve`: answers SQL by Spark Connect and JDBC until it is stopped."""

import signal

import click

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.waiting import StopRequest
from spark_jobs import command_options


@click.command()
@command_options.config
def serve(config: str) -> None:
    """Answer queries by Spark Connect and JDBC, of what is published: each is shown one publication, and nothing can be written.

    Addresses, users, certificate, limits and audit: [serve] in the lake's file.
    """
    file = load_file(config, LakeFile)
    from spark_jobs.serve import server

    stopped = StopRequest()
    for interruption in (signal.SIGTERM, signal.SIGINT):
        signal.signal(interruption, lambda *_: stopped.set())

    def ready(connect: int, thrift: int) -> None:
        host = file.serve.connect.rpartition(":")[0]
        click.echo(f"Spark Connect: sc://{host}:{connect}")
        click.echo(f"JDBC: jdbc:hive2://{file.serve.thrift.rpartition(':')[0]}:{thrift}")

    server.run(file, stopped, ready)
