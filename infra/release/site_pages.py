"""Pages for the documents' site: README and docs/ copied to a folder, with the navigation; `make docs` has MkDocs build them.

docs/index.md is the first page, README the page `overview`. What a page links to outside of docs/, as infra/router, is not
part of the site: the link becomes its text with the path. Pages that SECTIONS does not name come last, so that a new page is
never missing.
"""

import json
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

_ROOT = Path(__file__).parents[2]
#: The navigation: the names of pages, without `.md`.
SECTIONS = {
    "Start": ("overview", "quickstart", "comparison", "limits", "benchmarks", "size"),
    "How it works": ("architecture", "glossary", "records", "types", "avro", "consumers"),
    "Run": (
        "edge",
        "mariadb",
        "masking",
        "privacy",
        "bridge",
        "lake",
        "query",
        "lake-operate",
        "reader",
        "airflow",
        "verify",
        "deliveries",
        "configuration",
        "requests",
        "deploy",
        "kubernetes",
        "tenants",
        "cloud",
        "add-a-region",
        "upgrading",
    ),
    "Network and trust": ("network", "security"),
    "Operate": (
        "console",
        "metrics",
        "trouble",
        "recovery",
        "runbooks",
        "production",
    ),
    "Develop": ("developing",),
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def write(folder: Path) -> None:
    """Write `mkdocs.yml` and `pages/` to a folder, which is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    shutil.copytree(_ROOT / "docs", pages, ignore=shutil.ignore_patterns("requirements.txt"))
    for page in pages.rglob("*.md"):
        inside = PurePosixPath("docs") / page.relative_to(pages).as_posix()
        page.write_text(rewritten(page.read_text(encoding="utf-8"), inside), encoding="utf-8")
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    (pages / "overview.md").write_text(rewritten(readme, PurePosixPath("README.md")), encoding="utf-8")
    configuration = (_ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    # JSON is YAML.
    (folder / "mkdocs.yml").write_text(f"{configuration}nav: {json.dumps(navigation(pages))}\n", encoding="utf-8")


def rewritten(text: str, page: PurePosixPath) -> str:
    """Return a page's text with links that work in the site; `page` is its path in the repository."""

    def link(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        path, sign, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        there = _normal(page.parent / path)
        if there == PurePosixPath("README.md"):
            there = PurePosixPath("docs/overview.md")
        if there.parts[0] != "docs":
            return words if str(there) in words else f"{words} (`{there}`)"
        here = page.parent if page.parts[0] == "docs" else PurePosixPath("docs")
        up = [".."] * (len(here.parts) - 1)
        return f"{mark}[{words}]({'/'.join([*up, *there.parts[1:]])}{sign}{anchor})"

    # Code is not touched: every second piece is a block.
    pieces = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(piece if number % 2 else _LINK.sub(link, piece) for number, piece in enumerate(pieces))


def navigation(pages: Path) -> list[object]:
    """Return the navigation in the form of mkdocs.yml."""
    every = {page.relative_to(pages).as_posix().removesuffix(".md") for page in pages.rglob("*.md")} - {"index"}
    rest = sorted(every - {name for names in SECTIONS.values() for name in names})
    sections = {**SECTIONS, "More": tuple(rest)}
    return [
        "index.md",
        *({title: [f"{name}.md" for name in names if name in every]} for title, names in sections.items() if names),
    ]


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
