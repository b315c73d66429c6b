"""Writing a bridge's file."""

from pathlib import Path


def bridge_file(
    folder: Path,
    bootstrap: str,
    sources: dict[str, list[int]],
    *,
    topic: str,
    port: int = 0,
    url: str = "",
    credit: int = 64,
    metrics: str = "",
    sharing: str = "",
    session_seconds: int = 6,
    instance: str = "",
    tables: dict[str, str] | None = None,
    more: str = "",
    secure: str = "",
) -> Path:
    """Write a bridge's file with one stream and return its path.

    Bridges of one topic are one instance after the other, in a group of their own, unless they share sources. `more` is what
    follows, `secure` the interconnect's certificates.
    """
    owned = ", ".join(f'"{source}" = {partitions}' for source, partitions in sources.items())
    interconnect = f'url = "{url}"' if url else f'listen = "127.0.0.1:{port}"'
    path = folder / f"bridge-{len(list(folder.iterdir()))}.toml"
    path.write_text(
        f'[kafka]\nbootstrap = "{bootstrap}"\nprefix = "headrace.{topic}"\n\n'
        f"[interconnect]\n{interconnect}\ncredit = {credit}\n{secure}\n\n"
        + (f'[sharing]\ngroup = "{sharing}"\n' if sharing else "[sharing]\n")
        + f'instance = "{instance or (path.stem if sharing else "bridge")}"\nsession_seconds = {session_seconds}\n\n'
        + (f'[metrics]\nlisten = "{metrics}"\n\n' if metrics else "")
        + f'[streams.bank]\ntopic = "{topic}"\nsources = {{ {owned} }}\n'
        + "".join(f'tables."{table}" = "{cleanup}"\n' for table, cleanup in (tables or {}).items())
        + more,
        encoding="utf-8",
    )
    return path
