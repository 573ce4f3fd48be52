"""The HTML of a report: one file, nothing loaded from elsewhere, all text escaped."""

import json
import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape
from importlib import resources
from types import MappingProxyType

from trainplan.cli.blocks.blocks import (
    Block,
    Cell,
    Chart,
    Code,
    Column,
    Facts,
    Folded,
    Page,
    Paragraph,
    Section,
    Table,
)


@dataclass(frozen=True, slots=True)
class Colour:
    """A colour on the light and on the dark background."""

    light: str
    dark: str


BACKGROUND = Colour("#ffffff", "#14181d")
TEXT = Colour("#1b1f24", "#e6e9ed")


COLOURS: Mapping[str, Colour] = MappingProxyType(
    {
        "@text": TEXT,
        "@quiet": Colour("#59636e", "#9aa4af"),
        "@grid": Colour("#d8dee4", "#343b44"),
        "@background": BACKGROUND,
        "@limit": Colour("#c2211c", "#ff7b72"),
        "@blue": Colour("#1f6feb", "#6cb0ff"),
        "@green": Colour("#1a7f37", "#4cc26a"),
        "@orange": Colour("#b35900", "#f0a042"),
        "@violet": Colour("#8250df", "#b48cff"),
        "@teal": Colour("#0f7b8a", "#4cc4d4"),
        "@pink": Colour("#bf3989", "#f57ec3"),
        "@olive": Colour("#6b6f00", "#c6c94b"),
        "@brown": Colour("#8a5a44", "#d3a188"),
        "@grey": Colour("#6e7781", "#8b949e"),
    }
)
"""Each has at least 4.5:1 to the background of its theme as text, 3:1 as an area; tested."""


POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""Content security policy: the file can load nothing."""
LONG_WORDS = 40
"""Characters of a cell that keeps some width on a narrow screen."""
ZOOMS = (
    ("in", "Zoom in"),
    ("out", "Zoom out"),
    ("left", "Earlier"),
    ("right", "Later"),
    ("all", "All"),
)
"""Buttons of a chart that zooms: what the script does, and their labels."""
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"[a-zA-Z0-9-]+")
OWN_STYLE = re.compile(r"^(?:\.facts|\.answer|p\.)[^}]*\}", re.MULTILINE)
"""Rules of the style for the answer; a notebook nests them."""


def html(page: Page, *, whole: bool = True) -> str:
    """The file of a report, or what a notebook shows of it: the answer alone.

    Half a character of UTF-16, which no file can hold, becomes `?`.
    """
    names = [*(part.name for part in page.sections), *_chart_names(page)]
    assert len(names) == len({*names}), f"a name is given twice: {names}"
    text = "\n".join(_document(page) if whole else _top(page)) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")


def _document(page: Page) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(page.title)}</title>"
    yield '<link rel="icon" href="data:,">'
    yield f"<style>\n{_palette()}\n{_asset('page.css')}</style></head><body>"
    yield '<a class="skip" href="#answer">Skip to the answer</a>'
    yield f"<header><h1>{escape(page.title)}</h1>"
    yield '<button type="button" id="theme">Light or dark</button></header>'
    yield '<main><section id="answer">'
    yield from _answer(page)
    yield '</section><nav aria-label="Sections"><ul>'
    for part in page.sections:
        yield f'<li><a href="#{_name(part.name)}">{escape(part.title)}</a></li>'
    yield "</ul></nav>"
    for part in page.sections:
        yield from _section(part)
    yield "</main>"
    if any(_has_chart(part.blocks) for part in page.sections):
        yield f'<script type="text/plain" id="plotly">{_plotly()}</script>'
    yield f"<script>\n{_asset('page.js')}</script></body></html>"


def _top(page: Page) -> Iterator[str]:
    """The answer within a page of someone else, whose style it leaves alone."""
    style = "\n".join(OWN_STYLE.findall(_asset("page.css")))
    colours = "".join(f"--{name[1:]}:{one.light};" for name, one in COLOURS.items())
    yield f'<div class="trainplan"><style>.trainplan {{ {colours}\n{style} }}</style>'
    yield f"<strong>{escape(page.title)}</strong>"
    yield from _answer(page)
    yield "</div>"


def _answer(page: Page) -> Iterator[str]:
    yield f'<p class="answer">{escape(page.answer)}</p>'
    if page.facts.facts:
        yield from _html(page.facts)
    yield from (block for one in page.certainty for block in _html(one))


def _section(part: Section) -> Iterator[str]:
    yield f'<section id="{_name(part.name)}"><h2>{escape(part.title)}</h2>'
    for block in part.blocks:
        yield from _html(block)
    yield "</section>"


@singledispatch
def _html(block: Block) -> Iterator[str]:
    raise TypeError(f"no HTML for a {type(block).__name__}")


@_html.register
def _(block: Paragraph) -> Iterator[str]:
    yield f'<p class="{block.tone}">{_text(block.text)}</p>'


@_html.register
def _(block: Facts) -> Iterator[str]:
    yield f'<dl class="facts{" wide" * block.wide}">'
    for fact in block.facts:
        note = f"<dd class=note>{_text(fact.note)}</dd>" if fact.note else ""
        name, value = escape(fact.name), escape(fact.value)
        yield f'<div class="{fact.tone}"><dt>{name}</dt><dd class=value>{value}</dd>{note}</div>'
    yield "</dl>"


@_html.register
def _(block: Table) -> Iterator[str]:
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(block.caption)}">'
    yield f"<table><caption>{escape(block.caption)}</caption><thead><tr>"
    shown = [place for place, column in enumerate(block.columns) if column.only != "screen"]
    kinds = [_kind(column, place, block) for place, column in enumerate(block.columns)]
    yield from (_heading(block.columns[place], kinds[place]) for place in shown)
    yield "</tr></thead><tbody>"
    for number, row in enumerate(block.rows):
        marked = ' class="marked"' if number == block.marked else ""
        yield f"<tr{marked}>{''.join(_cell(kinds[place], row[place]) for place in shown)}</tr>"
    yield "</tbody></table></div>"


@_html.register
def _(block: Chart) -> Iterator[str]:
    name, half = _name(block.name), " half" * block.half
    yield f'<div class="chart{half}"><figure><figcaption>{escape(block.caption)}</figcaption>'
    yield f"<p>{_text(block.says)}</p>"
    yield f'<div id="{name}" class="drawing" style="height:{block.height}px" '
    yield f'role="img" data-height="{block.height}" '
    yield f'aria-label="{escape(block.caption)}. {escape(block.says)}" data-figure="{name}-data">'
    yield "</div>"
    if block.zooms:
        yield f'<div class="zoom" role="group" aria-label="Zoom" data-of="{name}">'
        yield from (
            f'<button type="button" data-zoom="{step}">{text}</button>' for step, text in ZOOMS
        )
        yield "</div>"
    yield f'<script type="application/json" id="{name}-data">{_json(block.figure)}</script>'
    yield "</figure><details><summary>The numbers</summary>"
    yield from _html(block.numbers)
    yield "</details></div>"


@_html.register
def _(block: Code) -> Iterator[str]:
    yield f'<div class="code"><div><span>{escape(block.name)}</span>'
    yield '<button type="button" class="copy">Copy</button></div>'
    yield f'<pre tabindex="0" aria-label="{escape(block.name)}">'
    yield f"{escape(block.text, quote=False)}</pre></div>"


@_html.register
def _(block: Folded) -> Iterator[str]:
    yield f"<details><summary>{escape(block.title)}</summary>"
    for one in block.blocks:
        yield from _html(one)
    yield "</details>"


def _text(text: str) -> str:
    """Words; what is in backticks is code."""
    return CODE.sub(r"<code>\1</code>", escape(text))


def _heading(column: Column, kind: str) -> str:
    hint = f' title="{escape(column.hint)}"' if column.hint else ""
    button = f'<button type="button"{hint}>{escape(column.name)}</button>'
    return f'<th scope="col" aria-sort="none"{kind}>{button}</th>'


def _kind(column: Column, place: int, table: Table) -> str:
    """How the cells of a column look."""
    long = any(len(row[place].text) > LONG_WORDS for row in table.rows)
    kinds = {
        "number": column.numeric,
        "long": long and not column.numeric,
        "spare": column.name in table.spare,
    }
    names = " ".join(name for name, holds in kinds.items() if holds)
    return f' class="{names}"' if names else ""


def _cell(kind: str, cell: Cell) -> str:
    value = f' data-value="{cell.value!r}"' if cell.value is not None else ""
    return f"<td{kind}{value}>{escape(cell.text)}</td>"


def _chart_names(page: Page) -> Iterator[str]:
    """Names of all charts."""
    for part in page.sections:
        blocks = list(part.blocks)
        while blocks:
            block = blocks.pop()
            if isinstance(block, Folded):
                blocks.extend(block.blocks)
            elif isinstance(block, Chart):
                yield block.name


def _has_chart(blocks: Sequence[Block]) -> bool:
    return any(
        isinstance(block, Chart) or (isinstance(block, Folded) and _has_chart(block.blocks))
        for block in blocks
    )


def _name(text: str) -> str:
    assert NAME.fullmatch(text), text
    return text


def _json(value: object) -> str:
    """JSON within a script element: no text of it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _palette() -> str:
    """The colours as variables of the style, which the script reads too."""
    light = "".join(f"--{name[1:]}:{one.light};" for name, one in COLOURS.items())
    dark = "".join(f"--{name[1:]}:{one.dark};" for name, one in COLOURS.items())
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark)"
        f"{{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}"
    )


def _asset(name: str) -> str:
    """A file of ours, unpacked where it is packed."""
    read = resources.files(__package__).joinpath("assets", name).read_bytes()
    return (lzma.decompress(read) if name.endswith(".xz") else read).decode("utf-8")


def _plotly() -> str:
    """The drawing library, plotly.js 4.1.1 with its cartesian traces; its licence is at its head.

    The script of the page runs it when a chart comes near: the answer does not wait for it.
    """
    return _asset("plotly-cartesian.min.js.xz").replace("</script", "<\\/script")
