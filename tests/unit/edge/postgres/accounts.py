"""A table of accounts, as its relation messages describe it."""

from tests.unit.edge.postgres.messages import INT8, Column, Log, relation

ID, NAME, NOTE = Column("id", INT8, key=True), Column("name"), Column("note")
DEFAULT = relation(ID, NAME, NOTE)
#: PostgreSQL marks every column of a table with full identity.
FULL = relation(*(column._replace(key=True) for column in (ID, NAME, NOTE)), identity="f")


def primary_key(_relation):
    return ["id"]


def full_log():
    return Log(key_of=primary_key)
