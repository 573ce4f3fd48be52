"""What mkdocs does more than its own for `make site`: links, headings and equations.

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
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from site_links import DOCS, FOLDER, as_page, for_the_site, linked, site_page

ROOT = Path(__file__).parents[2]
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
LEFT_AS_TYPED = re.compile(r"\\|>&<")
"""What the converter leaves of a command it does not know."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name headings as GitHub does, draw equations, make no page that must know its address."""
    config.theme.static_templates.discard("404.html")
    config.mdx_configs["toc"]["slugify"] = heading_anchor
    fence = {"name": "math", "class": "math", "format": as_equation}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
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
        if path.endswith((".md", ".ipynb")):
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
    """The page with the equations of its sentences as MathML."""
    return INLINE.sub(lambda found: mathml(html.unescape(found[1]), "inline"), html_text)


def as_equation(source: str, *_: object, **__: object) -> str:
    """A block fenced as `math` as MathML."""
    return mathml(source, "block")


def mathml(latex: str, display: str) -> str:
    """An equation as browsers draw it."""
    drawn = convert(latex.strip(), display=display)
    lines = latex.count(r"\\") + ("array" in latex)
    if LEFT_AS_TYPED.search(drawn) or drawn.count("<mtr>") != lines:
        raise PluginError(f"an equation is not all drawn, write it otherwise: {latex.strip()}")
    return drawn
