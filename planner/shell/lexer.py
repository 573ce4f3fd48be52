"""Shell text as tokens with their lines; what is between quotes and braces stays whole.

Own code, for no library serves: `bashlex` is under the GPL, and `tree-sitter-bash` 0.25.1 misreads
24 of 823 public scripts that bash itself takes, and needs 3.6 MB of compiled code.

Source: POSIX.1-2024, Shell Command Language, sections 2.3 and 2.7; GNU Bash manual 5.2.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from trainplan.planner.shell.launch import Place
from trainplan.planner.shell.words import BLANK_TO_FILL, Part, ShellError, Source, Words


@dataclass(slots=True)
class Token:
    """A word, an operator (a line's end is one), or `((...))`."""

    kind: Literal["word", "operator", "arithmetic"]
    text: str
    """Of a word, its text where nothing in it is quoted or expanded; otherwise empty."""
    place: Place
    parts: tuple[Part, ...] = ()
    elements: tuple[Token, ...] | None = None
    """Of `NAME=(...)`."""
    redirects: tuple[tuple[str, Token], ...] = ()
    """Behind it: operator, and the file, the text or the here-document."""


_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|()\n]")
_REDIRECTION = re.compile(r"\d*(?:(<<-?)(?!<)|<<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())|&>>?")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\Z")
_TEST = re.compile(r"&&|\|\|?|[()<>]")
_BEFORE_A_COMMAND = frozenset(
    {"if", "then", "elif", "else", "while", "until", "do", "for", "!", "{"}
)


class Lexer(Words):
    """Reads tokens off a source, from left to right, each position once."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.documents: list[tuple[Token, bool, Token]] = []
        """Here-documents whose bodies begin with the next line: delimiter, whether leading tabs
        go, and the word that they stand behind."""

    def tokens(self) -> list[Token]:
        """All tokens; comments are left out."""
        found: list[Token] = []
        in_test = False
        while self._skip_blanks():
            place = self.source.place(self.at)
            if in_test and (match := _TEST.match(self.text, self.at)):
                self.at = match.end()
                found.append(self._plain(match[0], place))
            elif (match := _REDIRECTION.match(self.text, self.at)) and not BLANK_TO_FILL.match(
                self.text, self.at
            ):
                self._redirection(match, found[-1] if found else None)
            elif match := _OPERATOR.match(self.text, self.at):
                found.append(self._operator(match, place, found[-1] if found else None))
            else:
                found.append(self._word())
                in_test = found[-1].text != "]]" if in_test else found[-1].text == "[["
        return found

    def operand(self, *, quoted: bool) -> tuple[Part, ...]:
        """The whole text as one word in which blanks are text, as inside `${A:-...}`."""
        parts: list[Part] = []
        while self.at < len(self.text):
            if self.text[self.at] in " \t\n;&|<>()" or (quoted and self.text[self.at] == "'"):
                self.add(parts, self.at + 1, quoted=quoted)
            else:
                self.piece(parts, quoted=quoted)
        return tuple(parts)

    def _skip_blanks(self) -> bool:
        """Go on to the next token; false at the end."""
        while match := _BLANK.match(self.text, self.at) or _COMMENT.match(self.text, self.at):
            self.at = match.end()
        return self.at < len(self.text)

    def _plain(self, text: str, place: Place) -> Token:
        return Token("word", text, place, (Part("text", text, text, place, quoted=False),))

    def _operator(self, match: re.Match[str], place: Place, last: Token | None) -> Token:
        starts = last is None or last.kind == "operator" or last.text in _BEFORE_A_COMMAND
        if starts and self.text.startswith("((", self.at):
            end = self.closing(self.at + 1, ")")
            if self.text.startswith("))", end - 2):
                body, self.at = self.text[self.at + 2 : end - 2], end
                return Token("arithmetic", body, place)
        self.at = match.end()
        if match[0] == "\n":
            self._skip_documents()
        return Token("operator", match[0], place)

    def _redirection(self, match: re.Match[str], owner: Token | None) -> None:
        """Keep it with the word before it."""
        self.at = match.end()
        if not self._skip_blanks() or self.text[self.at] in "\n;&|()":
            self.source.fail(match.start(), f"{match[0]!r} names no file: write it whole")
        target = self._word()
        owner = owner or target
        if match[1]:
            self.documents.append((target, match[1] == "<<-", owner))
        else:
            owner.redirects += ((match[0], target),)

    def _skip_documents(self) -> None:
        for target, strip, owner in self.documents:
            delimiter = "".join(part.text for part in target.parts)
            parts: list[Part] = []
            while self.at < len(self.text):
                place, end = self.source.place(self.at), self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line, self.at = self.text[self.at : end], end + 1
                line = line.lstrip("\t") if strip else line
                if line == delimiter:
                    break
                parts.append(Part("text", f"{line}\n", line, place, quoted=True))
            starts = list(accumulate((len(part.text) for part in parts[:-1]), initial=0))
            if parts and not any(part.quoted for part in target.parts):
                text = "".join(part.text for part in parts)
                inner = Words(Source(text, starts, [part.place for part in parts]))
                with suppress(ShellError):
                    expanded: list[Part] = []
                    inner.inside(expanded, "")
                    parts = expanded
            owner.redirects += (("<<", Token("word", "", target.place, tuple(parts))),)
        self.documents = []

    def _word(self) -> Token:
        start, place = self.at, self.source.place(self.at)
        parts: list[Part] = []
        while self.at < len(self.text):
            is_name = len(parts) == 1 and _ARRAY.fullmatch(parts[0].text)
            if self.text[self.at] == "(" and is_name:
                return Token("word", "", place, tuple(parts), self._elements())
            if self.text[self.at] == "(" and self.at > start and self.text[self.at - 1] in "?*+@!":
                self.add(parts, self.closing(self.at + 1, ")"), quoted=False)
            elif not self.piece(parts, quoted=False):
                break
        if self.at == start:
            self.source.fail(start, f"{self.text[start]!r} is where a word must be: write it whole")
        plain = all(part.kind == "text" and not part.quoted for part in parts)
        return Token("word", "".join(p.text for p in parts) if plain else "", place, tuple(parts))

    def _elements(self) -> tuple[Token, ...]:
        opened, found = self.at, list[Token]()
        self.at += 1
        while self._skip_blanks() and self.text[self.at] != ")":
            if self.text[self.at] == "\n":
                self.at += 1
            else:
                found.append(self._word())
        if self.at >= len(self.text):
            self.source.fail(opened, "the array that begins here never ends: add a `)`")
        self.at += 1
        return tuple(found)
