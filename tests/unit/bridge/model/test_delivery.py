"""The inbox: order, forgetting a link, waking who waits."""

import threading

from bridge.model.delivery import Delivery, Inbox


def a_delivery(ticket, link=1):
    return Delivery(ticket, link, None, "", b"")


def test_deliveries_come_out_in_order_and_none_when_there_is_none():
    inbox = Inbox()
    for ticket in range(3):
        inbox.put(a_delivery(ticket))
    assert [inbox.take(0).ticket for _ in range(3)] == [0, 1, 2]
    assert inbox.take(0) is None
    assert inbox.take(0.01) is None


def test_a_lost_link_takes_its_deliveries_with_it():
    inbox = Inbox()
    for ticket in range(6):
        inbox.put(a_delivery(ticket, link=ticket % 2))
    inbox.drop(1)
    assert len(inbox) == 3
    assert [delivery.ticket for delivery in inbox.clear()] == [0, 2, 4]


def test_closing_wakes_who_waits_and_gives_nothing_out_any_more():
    inbox, results = Inbox(), []
    waiting = threading.Thread(target=lambda: results.append(inbox.take(30)))
    waiting.start()
    inbox.close()
    waiting.join(20)
    assert results == [None]
    assert inbox.take(0) is None


def test_a_closed_inbox_takes_nothing_and_keeps_what_it_has_for_whoever_clears_it():
    inbox = Inbox()
    assert inbox.put(a_delivery(1))
    inbox.close()
    assert not inbox.put(a_delivery(2))
    assert inbox.take() is None
    assert [delivery.ticket for delivery in inbox.clear()] == [1]


def test_a_delivery_wakes_who_waits():
    inbox, results = Inbox(), []
    waiting = threading.Thread(target=lambda: results.append(inbox.take(30)))
    waiting.start()
    inbox.put(a_delivery(7))
    waiting.join(20)
    assert results[0].ticket == 7
