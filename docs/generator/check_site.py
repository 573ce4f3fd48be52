"""Does every link of the built site lead somewhere, and does the site need no network?

python docs/generator/check_site.py site     print what is wrong, exit code 1 if anything is
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = frozenset({"href", "src", "srcset"})
FETCHED = frozenset({"img", "script", "iframe", "source", "video"})
ICONS_AND_STYLES = frozenset({"stylesheet", "icon", "preconnect", "preload"})
LEFT_AS_TYPED = re.compile(r"^\s*(?:[*-] |\|.*\|\s*$|#+ )|\]\(\S+\)|\$\$|```", re.MULTILINE)
"""Marks of Markdown that a reader should not see."""
NO_TEXT = frozenset({"pre", "code", "script", "style", "math"})


@dataclass
class Read(HTMLParser):
    """What a page names, links to, fetches and states."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Take its name, and where it leads."""
        stated = {name: value or "" for name, value in attrs}
        self.anchors |= {stated[name] for name in ("id", "name") if name in stated}
        own = [stated[name] for name in LINKS & stated.keys()]
        fetches = tag in FETCHED or ICONS_AND_STYLES & set(stated.get("rel", "").split())
        self.fetched += own if fetches else []
        self.links += own
        if tag == "p":
            self.paragraphs.append("")
        if tag in NO_TEXT:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave what is no prose."""
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        """Keep the prose of paragraphs."""
        if self.paragraphs and not self.inside:
            self.paragraphs[-1] += data


def read(path: Path) -> Read:
    """One built page."""
    page = Read()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def complaints(site: Path) -> Iterator[str]:
    """What is wrong with the pages below a folder."""
    site = site.resolve()
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: no pages"
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name}: fetches {one}" for one in page.fetched if urlsplit(one).netloc)
        yield from (f"{name}: {one} leads nowhere" for one in page.links if _dead(one, path, pages))
        for text in page.paragraphs:
            mark = LEFT_AS_TYPED.search(text)
            if mark:
                yield f"{name}: Markdown left as typed near {text[mark.start() :][:60]!r}"


def unsearchable(site: Path) -> Iterator[str]:
    """Pages that the search of the site, which works without a network, does not have."""
    index = site / "search" / "search_index.js"
    text = index.read_text(encoding="utf-8") if index.exists() else ""
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if f'"location":"{name}"' not in text:
            yield f"{name}: the search does not find it"


def _dead(link: str, path: Path, pages: Mapping[Path, Read]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not parts.fragment or target not in pages:
        return not target.exists()
    return unquote(parts.fragment) not in pages[target].anchors


def main(arguments: Sequence[str]) -> int:
    """Check a site."""
    site = Path(arguments[0])
    found = [*complaints(site), *unsearchable(site)]
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
