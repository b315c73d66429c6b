"""The site's pages: the index comes first, links work from there, links out of docs/ become text, no page is left out."""

from pathlib import PurePosixPath

from infra.release.site_pages import SECTIONS, navigation, rewritten, write

README, EDGE, RUNBOOK = map(PurePosixPath, ("README.md", "docs/edge.md", "docs/runbooks/region.md"))


def test_links_lead_to_pages_of_the_site_or_become_text():
    assert rewritten("[a](docs/edge.md#spool)", README) == "[a](edge.md#spool)"
    assert rewritten("[a](bridge.md) [b](#here)", EDGE) == "[a](bridge.md) [b](#here)"
    assert rewritten("[a](../edge.md)", RUNBOOK) == "[a](../edge.md)"
    assert rewritten("[a](../README.md)", EDGE) == "[a](overview.md)"
    assert rewritten("[rules](../../infra/monitoring/alerts)", RUNBOOK) == "rules (`infra/monitoring/alerts`)"
    assert rewritten("[infra/router](../infra/router)", EDGE) == "infra/router"
    assert rewritten("[a](https://example.org/x)", EDGE) == "[a](https://example.org/x)"
    assert (
        rewritten("```\n[a](../b)\n```\n![p](docs/images/p.svg)", README) == "```\n[a](../b)\n```\n![p](images/p.svg)"
    )


def test_every_page_is_in_the_navigation_once(tmp_path):
    write(tmp_path / "site")
    pages = tmp_path / "site" / "pages"
    named = [name for section in navigation(pages)[1:] for names in section.values() for name in names]
    assert len(named) == len(set(named))
    assert {*named, "index.md"} == {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    assert {name for names in SECTIONS.values() for name in names} <= {name.removesuffix(".md") for name in named}
    assert "nav: [" in (tmp_path / "site" / "mkdocs.yml").read_text()
