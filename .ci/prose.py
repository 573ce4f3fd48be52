"""Holds user-facing text to the words of `words.toml`. `make check` runs it with the house.

An area is a list of files and what of them is read: Markdown without code, strings that have a
space (what commands print, errors, help), or docstrings. Names between backquotes, links' targets
and text between quotation marks are not read.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
BANNED = {
    re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): better
    for pattern, better in TABLE["prose"].items()
}
CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
NAMES = re.compile(
    r"(?<!\w)--?[a-z][\w-]*(?:=\S+)?|\w+=[\w.]+|``.*?``|`[^`]*`|\]\([^)]*\)|<[^<>]*>|“[^”]*”|\"[^\"\n]*\""
)


class Text(NamedTuple):
    """A piece of prose and the line of its file where it begins."""

    line: int
    prose: str


def blank(match: re.Match[str]) -> str:
    """Only the lines of what is not read."""
    return "\n" * match[0].count("\n")


def of_markdown(text: str) -> Iterator[Text]:
    """A page, without its code."""
    yield Text(1, CODE.sub(blank, text))


def of_changelog(text: str) -> Iterator[Text]:
    """What is not released."""
    head, _, rest = text.partition("\n## Unreleased\n")
    yield Text(head.count("\n") + 3, rest.partition("\n## ")[0])


def is_text(node: ast.AST) -> bool:
    """Whether a node is a string."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@functools.cache
def nodes(text: str) -> list[ast.AST]:
    """Every node of a module, itself first: parsed and walked once for all that read it."""
    return list(ast.walk(ast.parse(text)))


def docstrings(text: str) -> list[ast.Constant]:
    """Strings that stand alone: of modules, classes, functions and constants."""
    bodies = [body for node in nodes(text) if isinstance(body := getattr(node, "body", 0), list)]
    alone = [one.value for body in bodies for one in body if isinstance(one, ast.Expr)]
    return [one for one in alone if isinstance(one, ast.Constant) and is_text(one)]


def of_docstrings(text: str) -> Iterator[Text]:
    """Docstrings of a module."""
    for one in docstrings(text):
        yield Text(one.lineno, str(one.value))


def of_strings(text: str) -> Iterator[Text]:
    """What a module may print: strings with a space that are no docstrings."""
    documents = {id(one) for one in docstrings(text)}
    for one in nodes(text):
        if isinstance(one, ast.Constant) and is_text(one) and id(one) not in documents:
            yield Text(one.lineno, str(one.value) if " " in str(one.value) else "")


READS = {
    "markdown": of_markdown,
    "changelog": of_changelog,
    "docstrings": of_docstrings,
    "strings": of_strings,
}


def wrong_words(text: Text) -> Iterator[tuple[int, str, str]]:
    """Line, word and what to write for it."""
    prose = NAMES.sub(blank, text.prose)
    for pattern, better in BANNED.items():
        for match in pattern.finditer(prose):
            yield text.line + prose[: match.start()].count("\n"), match[0], better


def wrong() -> Iterator[str]:
    """What is wrong in every area."""
    allowed = TABLE["allowed"]
    for area in TABLE["areas"]:
        files = sorted({path for glob in area["files"] for path in ROOT.glob(glob)})
        if not files:
            yield f"words.toml: {area['files']} are no files"
        for path in files:
            where = path.relative_to(ROOT).as_posix()
            if any(path.match(one) for one in area.get("without", ())):
                continue
            for text in READS[area["read"]](path.read_text(encoding="utf-8")):
                for line, word, better in wrong_words(text):
                    if word.lower() not in allowed.get(where, ()):
                        yield f"{where}:{line} '{word}': write {better} (.ci/words.toml)"
