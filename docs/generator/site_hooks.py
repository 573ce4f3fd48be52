"""What mkdocs does beside its own for `make site`: links, headings and equations.

The pages are written for GitHub, too. So headings are named as there, links out of docs/ lead to
pages that are made here, and equations become MathML, which browsers draw without a script.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from site_links import DOCS, FOLDER, as_page, for_the_site, linked, site_page

ROOT = Path(__file__).parents[2]
EQUATION = re.compile(r'<(div|span) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name headings as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = heading_anchor
    return config


def heading_anchor(title: str, separator: str) -> str:
    """The name GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that a page links to, or that such a page does."""
    waiting = [DOCS + file.src_uri for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        text = (ROOT / path).read_text(encoding="utf-8")
        if not path.startswith(DOCS):
            page = as_page(text, path)
            added = File.generated(config, site_page(path), content=page)
            added.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(added)
        if path.endswith(".md"):
            new = {one for one in linked(text, path) if not one.startswith(DOCS)} - seen
            seen |= new
            waiting += sorted(new)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """The text with links as the site has them."""
    source = page.file.src_uri
    if source.startswith(FOLDER):
        return markdown
    return for_the_site(markdown, DOCS + source)


def on_page_content(html_text: str, **_: object) -> str:
    """The page with its equations as MathML."""
    return EQUATION.sub(_mathml, html_text)


def _mathml(equation: re.Match[str]) -> str:
    display = "block" if equation[1] == "div" else "inline"
    return convert(html.unescape(equation[2].strip()), display=display)
