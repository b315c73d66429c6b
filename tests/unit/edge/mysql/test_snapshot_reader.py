"""What the moment of a copy is known to have."""

from edge.mysql.checkpoint import MysqlGtids
from edge.mysql.events import Group
from edge.mysql.snapshot_reader import Moment, Seen, Transaction, _parse_owned

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_what_threads_own_is_read_as_the_server_writes_it():
    assert str(_parse_owned("")) == ""
    assert str(_parse_owned(f"{A}:7#12:9#14,\n{B}:3#15")) == f"{A}:7:9,{B}:3"
    assert str(MysqlGtids.parse(f"{A}:1-6").joined(_parse_owned(f"{A}:7#12"))) == f"{A}:1-7"


def test_a_transaction_that_was_being_committed_is_neither_had_nor_lacked_for_certain():
    moment = object.__new__(Moment)
    moment.seen = Seen(MysqlGtids.parse(f"{A}:1-6"), MysqlGtids.parse(f"{A}:1-7"))

    def known(number):
        group = Group(domain=0, origin=A, number=number)
        return moment.lacks(Transaction(1, group)), moment.is_unsure(Transaction(1, group))

    assert [known(number) for number in (6, 7, 8)] == [(False, False), (True, True), (True, False)]
