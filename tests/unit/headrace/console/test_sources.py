"""Filter, order and pages of the list of sources."""

from headrace.console import sources
from headrace.console.bridges import BridgesView, SourceSeen
from headrace.console.lake_view import LakeView
from headrace.status.answer import SourceStatus


def found(count=250):
    seen = {
        f"r{number % 7}/db{number:03}": SourceSeen(
            status=SourceStatus(
                source=f"r{number % 7}/db{number:03}",
                state="serving",
                edge_state="silent" if number == 123 else "capturing",
                committed_lag_seconds=float(number % 10),
                records_per_second=float(number),
            )
        )
        for number in range(count)
    }
    streams = {name: "cards" if number % 2 else "bank" for number, name in enumerate(seen)}
    return sources.rows(BridgesView(bridges=(), sources=seen), LakeView(configured=False), streams)


def names(listed):
    return [row.source for row in listed.rows]


def test_without_a_wish_what_fails_comes_first_and_a_page_has_a_hundred():
    listed = sources.listed(found(), sources.asked({}))
    assert names(listed)[0].endswith("db123")
    assert (len(listed.rows), listed.matching, listed.pages) == (100, 250, 3)


def test_all_pages_together_are_all_sources_once():
    pages = [names(sources.listed(found(), sources.asked({"page": str(page)}))) for page in (1, 2, 3)]
    assert len({name for page in pages for name in page}) == 250


def test_sources_are_filtered_by_name_state_and_stream():
    assert names(sources.listed(found(), sources.asked({"q": "DB017"}))) == ["r3/db017"]
    assert len(names(sources.listed(found(), sources.asked({"state": "bad"})))) == 1
    assert sources.listed(found(), sources.asked({"stream": "cards"})).matching == 125
    assert sources.listed(found(), sources.asked({"q": "nothing like it"})).matching == 0


def test_sources_are_sorted_by_a_column_in_either_direction():
    wish = sources.asked({"sort": "rate"})
    assert names(sources.listed(found(), wish))[0].endswith("db249")
    turned = sources.asked({"sort": "rate", "reverse": "1"})
    assert names(sources.listed(found(), turned))[0].endswith("db000")
    assert wish.sorting("rate") == "/?sort=rate&reverse=1"
    assert wish.sorting("lag") == "/?sort=lag"


def test_what_an_address_cannot_mean_counts_as_not_given():
    wish = sources.asked({"page": "-1", "sort": "password", "state": "odd", "q": "x" * 1000})
    assert (wish.page, wish.sort, wish.state, len(wish.text)) == (1, "state", "", 200)
    assert sources.listed(found(3), sources.asked({"page": "99"})).page == 1
    assert sources.asked({"page": "9" * 5000}).page == 1


def test_links_keep_the_filter_and_escape_it():
    assert sources.asked({"q": "a&b", "page": "3"}).link(page=2) == "/?q=a%26b&page=2"
    assert sources.asked({}).link() == "/"
