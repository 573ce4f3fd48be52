"""Holds the walls of the source: doors, code lines and words. `make check` runs it.

A room is a folder directly below a package, or a module there. From outside only names of its
`__init__` are imported, at most `WIDEST`, and the docstring there says each in a line. The code
lines of a room (no blanks, comments, docstrings) stay within `code_lines.toml`; `--lower` writes
today's counts there where they are smaller. No identifier is one of `WORDS`, and user-facing text
has none of the words of `words.toml` (`prose.py`).
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("costmodel", "planner", "profiler", "cli")
BUDGET = Path(__file__).with_name("code_lines.toml")
USERS_DOOR = ("cli", "python")
"""It is `trainplan` as well: users take its names."""
WIDEST = 25
NAMED = re.compile(r"^(\w+): ", re.MULTILINE)
WORDS = frozenset(prose.TABLE["identifiers"])
"""Not the field's: requested, stated, overlapped, separate, intended, scored, least memory ..."""
PUBLIC = frozenset(prose.TABLE["public"])
"""Keys of documents, which stay compatible, and the classes that hold them."""


def room(path: Path) -> tuple[str, str]:
    """Package and room of a file; of a module of a package it is the module."""
    package, inner, *_ = path.relative_to(ROOT).parts
    return package, inner.removesuffix(".py")


def sources() -> list[Path]:
    """Every module of the four packages."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def code_lines(text: str) -> int:
    """Lines that hold code; in a string of many lines, all of them."""
    held = text.splitlines()
    lines = {n for n, one in enumerate(held, 1) if one.strip() and not one.lstrip().startswith("#")}
    for one in prose.nodes(text):
        if isinstance(one, ast.Constant) and "\n" in str(one.value):
            lines.update(range(one.lineno, (one.end_lineno or 0) + 1))
    for one in prose.docstrings(text):
        lines.difference_update(range(one.lineno, (one.end_lineno or 0) + 1))
    return len(lines)


def taken(text: str) -> Iterator[tuple[int, tuple[str, ...], list[str]]]:
    """Line, module below trainplan, and names of every import of ours."""
    for node in prose.nodes(text):
        if isinstance(node, ast.ImportFrom) and node.module:
            top, *module = node.module.split(".")
            if top == "trainplan":
                yield node.lineno, tuple(module), [name.name for name in node.names]
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("trainplan."):
                    yield node.lineno, tuple(name.name.split(".")[1:]), []


def offers(texts: dict[Path, str]) -> dict[tuple[str, ...], set[str]]:
    """Names that each door imports."""
    return {
        room(path): {
            name for _, module, names in taken(text) if module[:2] == room(path) for name in names
        }
        for path, text in texts.items()
        if path.name == "__init__.py" and path.parent.parent.parent == ROOT
    }


def doors(texts: dict[Path, str], examples: dict[Path, str]) -> Iterator[str]:
    """What is imported past a door, and doors that do not name what they offer."""
    offered = offers(texts)
    used = {one: names if one == USERS_DOOR else set[str]() for one, names in offered.items()}
    for path, text in (texts | examples).items():
        for line, module, names in taken(text):
            where = f"{path.relative_to(ROOT)}:{line}"
            for name in names if len(module) == 1 else ():  # catalog, for catalog.device
                used.get((*module, name), set()).update(attributes(text, name))
            if len(module) < 2 or module[:2] == room(path):
                continue
            if len(module) > 2:
                yield f"{where} reaches into {'/'.join(module[:2])}: import from its __init__"
            elif module in offered:
                used[module] |= set(names)
                for name in set(names) - offered[module]:
                    yield f"{where} takes {name}, which {'/'.join(module)} does not offer"
    for one, names in offered.items():
        yield from door(ROOT.joinpath(*one, "__init__.py"), names, used[one])


def attributes(text: str, name: str) -> Iterator[str]:
    """What is taken of a module that is imported whole."""
    for node in prose.nodes(text):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == name:
            yield node.attr


def door(path: Path, names: set[str], used: set[str]) -> Iterator[str]:
    """One that is too wide, or whose docstring and imports differ."""
    where = path.relative_to(ROOT)
    text = path.read_text("utf-8")
    named = set(NAMED.findall(ast.get_docstring(ast.parse(text)) or ""))
    hidden = sorted(names & {one.stem for one in path.parent.glob("*.py")})
    if hidden and "= door(__name__)" in text:
        yield f"{where} offers {hidden}: a file of that name hides it once it is imported"
    if len(names) > WIDEST:
        yield f"{where} offers {len(names)} names, at most {WIDEST}: is the room two?"
    if names != named:
        more, less = sorted(names - named), sorted(named - names)
        yield f"{where} imports {more} without a line, has lines for {less}"
    if names - used:
        yield f"{where} offers {sorted(names - used)}, which no other room takes"


def budget(texts: dict[Path, str], *, lower: bool) -> Iterator[str]:
    """Rooms with more code lines than the file allows."""
    counted: Counter[str] = Counter()
    for path, text in texts.items():
        counted["/".join(room(path))] += code_lines(text)
    held = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    raised: Counter[str] = Counter()
    for one in held.get("raised", ()):
        raised[one["room"]] += one["lines"]
        if not one["why"].strip():
            yield f"{BUDGET.name}: {one['room']} is raised without a why"
    for name, lines in sorted(counted.items()):
        if lines > (most := held["rooms"].get(name, 0) + raised[name]):
            yield f"{name} has {lines} code lines, {BUDGET.name} allows {most}: take some out"
    if lower:
        head = BUDGET.read_text(encoding="utf-8").partition("[rooms]")[0]
        allowed = {n: held["rooms"].get(n, c) + raised[n] for n, c in sorted(counted.items()) if c}
        figures = {n: min(counted[n], most) - raised[n] for n, most in allowed.items()}
        lines = "".join(f'"{name}" = {count}\n' for name, count in figures.items())
        BUDGET.write_text(f"{head}[rooms]\n{lines}", encoding="utf-8")


def identifiers(text: str) -> Iterator[tuple[int, str]]:
    """Names with their lines; those of tests are sentences."""
    for node in prose.nodes(text):
        line = getattr(node, "lineno", 0)
        for field in ("id", "attr", "arg", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not name.startswith("test_"):
                yield line, name.rpartition(".")[2]


def odd(name: str) -> bool:
    """Whether a part of it is no word of the field."""
    parts = {part.lower() for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", name)}
    return name not in PUBLIC and bool(WORDS & parts)


def words(texts: dict[Path, str]) -> Iterator[str]:
    """Identifiers and files with a word that no engineer of the field would use there."""
    for path, text in texts.items():
        found = {} if path.stem.startswith("test_") else {path.stem: 0}
        if any(word in text.lower() for word in WORDS):  # else it need not be parsed
            found.update({name: line for line, name in identifiers(text)})
        for name, line in found.items():
            if odd(name):
                where = path.relative_to(ROOT)
                yield f"{where}:{line} {name}: name it as docs/reference/glossary.md does"


def main() -> int:
    """Print what is wrong; the exit code is 1 where something is."""
    gc.disable()  # parsed files stay to the end
    texts = {path: path.read_text(encoding="utf-8") for path in sources()}
    others = {
        path: path.read_text(encoding="utf-8")
        for top in ("tests", "docs", "examples", ".ci")
        for path in sorted((ROOT / top).rglob("*.py"))
    }
    plug_ins = {
        p: t for p, t in others.items() if p.is_relative_to(ROOT / "examples" / "importers")
    }
    wrong = [
        *doors(texts, plug_ins),
        *budget(texts, lower="--lower" in sys.argv),
        *words(texts | others),
        *prose.wrong(),
    ]
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
