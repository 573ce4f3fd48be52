"""Where the links of a page lead on the site.

On the site a page of docs/ stays where it is. What such a page links to elsewhere in the repository
becomes a page below `repository/`: Markdown as it is, any other file as a block of code. So every
link works without a network, whatever address the repository has.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = "docs/"
FOLDER = "repository/"
LANGUAGES: Mapping[str, str] = {
    ".json": "json",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".yaml": "yaml",
}
CODE = re.compile(r"^(`{3,}).*?^\1`*$|(?<!`)(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"""(?<=\]\()[^)\s#]+(?=[)#])|(?<=\ssrc=")[^"\s]+(?=")|(?<=\ssrcset=")[^"\s]+(?=")"""
)
IN_CELL = re.compile(r"`[^`]+`")
OPTION = re.compile(r"^\| `((?:-\w, )?--[\w-]+) ([^`]+)`")
COMMANDS = re.compile(r"^```(?:bash|console|text)$.*?^```$", re.MULTILINE | re.DOTALL)
COLUMNS = 100
"""Of a block of code that are seen on a screen of 1280 pixels."""
CUTS = re.compile(r"^(```console) [\d-]+$", re.MULTILINE)
"""How much docs/generator/console.py shows is no word for a reader."""


def site_page(path: str) -> str:
    """The source of the site's page for a file of the repository, such as `docs/tutorial.md`."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return f"{FOLDER}{path}" if path.endswith(".md") else f"{FOLDER}{path}.md"


def as_page(text: str, path: str) -> str:
    """A file outside docs/ as a page of the site."""
    if path.endswith(".md"):
        return for_the_site(text, path)
    if path.endswith(".ipynb"):
        return for_the_site("\n".join(_cells(json.loads(text)["cells"])), path)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n{_block(language, text)}"


def _cells(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A notebook as Markdown: its text, its code and what the code printed."""
    for cell in cells:
        source = "".join(cell["source"])
        yield source + "\n" if cell["cell_type"] == "markdown" else _block("python", source)
        printed = "".join(line for one in cell.get("outputs", ()) for line in one.get("text", ()))
        if printed:
            yield _block("text", printed)


def _block(language: str, text: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````\n"


def linked(text: str, path: str) -> Iterator[str]:
    """Files of the repository that a page of it, at `path`, links to."""
    for target in LINK.findall(CODE.sub("", text)):
        if ":" not in target:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def for_the_site(text: str, path: str) -> str:
    """The page with links as the site has them."""
    here = posixpath.dirname(site_page(path))

    def moved(link: re.Match[str]) -> str:
        target = link[0]
        if ":" in target:
            return target
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return posixpath.relpath(site_page(file), here or ".")

    lines = _outside_code(text, moved).split("\n")
    cells = (_cells_as_typed(line) if line.startswith("| ") else line for line in lines)
    return COMMANDS.sub(_whole_commands, CUTS.sub(r"\1", "\n".join(cells)))


def _whole_commands(block: re.Match[str]) -> str:
    """A block of commands that are whole on a screen: long ones go on in the next line."""
    return "\n".join(map(_continued, block[0].split("\n")))


def _continued(line: str) -> str:
    if len(line) <= COLUMNS or not line.startswith(("$ ", "plan ", "    --")) or " # " in line:
        return line
    first, *options = re.split(r" (?=--)", line)
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) < COLUMNS - 2:
            lines[-1] += f" {option}"
        else:
            lines.append(f"    {option}")
    return " \\\n".join(lines)


def _cells_as_typed(row: str) -> str:
    r"""A row of a table whose code has no escapes; an option breaks between the values it takes.

    GitHub wants `a\|b` in a cell; on the site the backslash would be shown.
    """
    row = IN_CELL.sub(lambda code: code[0].replace("\\|", "|"), row)
    return OPTION.sub(_option, row)


def _option(cell: re.Match[str]) -> str:
    name, values = cell.groups()
    shown = re.sub("([|,])", r"\1<wbr>", html.escape(values)).replace("|", "&#124;")
    return f'| <code>{name}</code> <code class="values">{shown}</code>'


def _outside_code(text: str, moved: Callable[[re.Match[str]], str]) -> str:
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(moved, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join((*parts, LINK.sub(moved, text[end:])))
