"""A transaction that is passed over: its events are followed to its end, and read for the tables that they name alone."""

import struct

from edge.mysql import events
from edge.mysql.ddl import Kind, Name, Statement
from edge.mysql.table_cache import TableCache
from edge.mysql.table_map import parse_names
from headrace.errors import ReplicationError

_UNDECODABLE = (struct.error, IndexError, KeyError, ValueError, OverflowError, ReplicationError)


class PassedEvents:
    """What is known of one such transaction; `is_single`: its first statement is its end, unless that is BEGIN."""

    def __init__(self, tables: TableCache, *, is_single: bool) -> None:
        self._tables, self._is_single = tables, is_single
        self._named: set[Name] = set()
        self._is_whole = True

    @property
    def touched(self) -> set[Name]:
        """The captured tables that it may have changed: all where that cannot be read."""
        if not self._is_whole:
            return self._tables.all_captured()
        return {name for name in self._named if self._tables.captures(*name)}

    def ends(self, event: bytes, end: int) -> bool:
        """Take an event of it; return whether that is its last one."""
        kind = event[4]
        try:
            if kind == events.TABLE_MAP:
                database, table, _ = parse_names(event[events.HEADER_SIZE : end])
                self._named.add((database, table))
            elif kind in {events.QUERY, events.QUERY_COMPRESSED}:
                return self._ends_with(events.query(event, end, compressed=kind == events.QUERY_COMPRESSED))
            elif kind == events.TRANSACTION_PAYLOAD:
                for inner in events.Payload(event[events.HEADER_SIZE : end]).events():
                    self.ends(inner, len(inner))
            elif kind == events.EXECUTE_LOAD:
                self._name(*self._tables.statement(events.loading_query(event, end)))
            elif kind not in events.ROWS and kind not in events.PASSED and kind not in {events.XID, events.XA_PREPARE}:
                self._is_whole = False
        except _UNDECODABLE:
            self._is_whole = False
            return self._is_single or kind == events.TRANSACTION_PAYLOAD
        return kind in {events.XID, events.XA_PREPARE, events.TRANSACTION_PAYLOAD}

    def _ends_with(self, query: events.Query) -> bool:
        text, statement = self._tables.statement(query)
        if statement.kind in {Kind.BEGIN, Kind.XA_START}:
            self._is_single = False
            return False
        if statement.kind is Kind.COMMIT or (statement.kind is Kind.ROLLBACK and " " not in statement.opening):
            return True
        self._name(text, statement)
        return self._is_single

    def _name(self, _text: str, statement: Statement) -> None:
        if statement.kind not in {Kind.HARMLESS, Kind.ROLLBACK, Kind.XA_END}:
            names = {*statement.tables, *(name for name, _ in statement.moved)}
            self._named |= names
            self._is_whole = self._is_whole and bool(names)
