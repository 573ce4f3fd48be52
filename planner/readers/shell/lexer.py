"""Shell text as tokens with their lines; what is between quotes and braces stays whole.

Own code, for no library serves: `bashlex` is under the GPL, and of 813 public scripts that came
with the runtimes `tree-sitter-bash` 0.25.1 misreads 64.

Source: POSIX.1-2024, Shell Command Language, sections 2.2, 2.3 and 2.7; GNU Bash manual 5.2.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from trainplan.costmodel.base.errors import PlanError


class ShellError(PlanError):
    """Text that no shell would take, or that is too deep or too large to read."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text with the lines that it stands on."""

    text: str
    file: str | None
    starts: Sequence[int]
    """Where in `text` something of another line begins; the first is 0."""
    lines: Sequence[int | None]
    """The line of what begins there."""

    def line(self, at: int) -> int | None:
        """Line of a position."""
        return self.lines[bisect_right(self.starts, at) - 1]

    def fail(self, at: int, what: str) -> NoReturn:
        """Refuse the text at a position."""
        raise ShellError(f"{where(self.file, self.line(at))}: {what}")


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a word: text without its quotes, or something to expand."""

    kind: Literal["text", "parameter", "command", "arithmetic"]
    text: str
    """Of an expansion, what stands inside."""
    written: str
    line: int | None
    quoted: bool


@dataclass(frozen=True, slots=True)
class Token:
    """A word, an operator (a line's end is one), or `((...))`."""

    kind: Literal["word", "operator", "arithmetic"]
    text: str
    """Of a word, its text where nothing in it is quoted or expanded; otherwise empty."""
    line: int | None
    parts: tuple[Part, ...] = ()
    elements: tuple[Token, ...] | None = None
    """Of `NAME=(...)`."""


def where(file: str | None, line: int | None) -> str:
    """A place, as errors begin with it."""
    return (file or "the command") + (f", line {line}" if line is not None else "")


def source_of(text: str, file: str | None) -> Source:
    """A whole file."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ShellError(f"{where(file, line)}: a NUL byte: this is no shell script, name another")
    text = text.replace("\r\n", "\n")
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return Source(text, file, starts, range(1, len(starts) + 1))


_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>()]+")
_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|()\n]")
_REDIRECTION = re.compile(r"\d*(?:(<<-?)(?!<)|<<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())|&>>?")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\Z")
_TEST = re.compile(r"&&|\|\|?|[()<>]")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_INSIDE = re.compile(r"<<-?[ ]*['\"]?\w|[\\'\"`()}$#]")
_DOCUMENT = re.compile(r"<<-?[ ]*(['\"]?)(\w+)\1[^\n]*(?=\n)")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "v": "\v",
}
_BEFORE_A_COMMAND = frozenset(
    {"if", "then", "elif", "else", "while", "until", "do", "for", "!", "{"}
)


class Lexer:
    """Reads tokens off a source, from left to right, each position once."""

    def __init__(self, source: Source) -> None:
        self.source, self.text, self.at = source, source.text, 0
        self.documents: list[tuple[str, bool]] = []
        """Here-documents whose bodies begin with the next line: delimiter, leading tabs go."""

    def tokens(self) -> list[Token]:
        """All tokens; comments, redirections and here-documents are left out."""
        found: list[Token] = []
        in_test = False
        while self._skip_blanks():
            line = self.source.line(self.at)
            if in_test and (match := _TEST.match(self.text, self.at)):
                self.at = match.end()
                found.append(self._plain(match[0], line))
            elif match := _REDIRECTION.match(self.text, self.at):
                self._redirection(match)
            elif match := _OPERATOR.match(self.text, self.at):
                found.append(self._operator(match, line, found[-1] if found else None))
            else:
                found.append(self._word())
                in_test = found[-1].text != "]]" if in_test else found[-1].text == "[["
        return found

    def operand(self, *, quoted: bool) -> tuple[Part, ...]:
        """The whole text as one word in which blanks are text, as inside `${A:-...}`."""
        parts: list[Part] = []
        while self.at < len(self.text):
            if self.text[self.at] in " \t\n;&|<>()" or (quoted and self.text[self.at] == "'"):
                self._add(parts, self.at + 1, quoted=quoted)
            else:
                self._piece(parts, quoted=quoted)
        return tuple(parts)

    def _skip_blanks(self) -> bool:
        """Go on to the next token; false at the end."""
        while match := _BLANK.match(self.text, self.at) or _COMMENT.match(self.text, self.at):
            self.at = match.end()
        return self.at < len(self.text)

    def _plain(self, text: str, line: int | None) -> Token:
        return Token("word", text, line, (Part("text", text, text, line, quoted=False),))

    def _operator(self, match: re.Match[str], line: int | None, last: Token | None) -> Token:
        starts = last is None or last.kind == "operator" or last.text in _BEFORE_A_COMMAND
        if starts and self.text.startswith("((", self.at):
            end = self._closing(self.at + 1, ")")
            if self.text.startswith("))", end - 2):
                body, self.at = self.text[self.at + 2 : end - 2], end
                return Token("arithmetic", body, line)
        self.at = match.end()
        if match[0] == "\n":
            self._skip_documents()
        return Token("operator", match[0], line)

    def _redirection(self, match: re.Match[str]) -> None:
        """Skip it and its file; note a here-document."""
        self.at = match.end()
        if not self._skip_blanks() or self.text[self.at] in "\n;&|()":
            self.source.fail(match.start(), f"{match[0]!r} names no file: write it whole")
        target = self._word()
        if match[1]:
            delimiter = "".join(part.text for part in target.parts)
            self.documents.append((delimiter, match[1] == "<<-"))

    def _skip_documents(self) -> None:
        for delimiter, strip in self.documents:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line, self.at = self.text[self.at : end], end + 1
                if (line.lstrip("\t") if strip else line) == delimiter:
                    break
        self.documents = []

    def _word(self) -> Token:
        start, line = self.at, self.source.line(self.at)
        parts: list[Part] = []
        while self.at < len(self.text):
            if self.text[self.at] == "(" and _ARRAY.match(self.text[start : self.at]):
                return Token("word", "", line, tuple(parts), self._elements())
            if self.text[self.at] == "(" and self.at > start and self.text[self.at - 1] in "?*+@!":
                self._add(parts, self._closing(self.at + 1, ")"), quoted=False)
            elif not self._piece(parts, quoted=False):
                break
        if self.at == start:
            self.source.fail(
                start, f"{self.text[start]!r} stands where a word must: write it whole"
            )
        plain = all(part.kind == "text" and not part.quoted for part in parts)
        return Token("word", "".join(p.text for p in parts) if plain else "", line, tuple(parts))

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

    def _piece(self, parts: list[Part], *, quoted: bool) -> bool:
        """Read one piece of a word; false where the word ends."""
        if match := _PLAIN.match(self.text, self.at):
            self._add(parts, match.end(), quoted=quoted)
            return True
        char, start = self.text[self.at], self.at
        if char == "'":
            self._single(parts)
        elif char == '"':
            self._double(parts)
        elif char == "\\":
            self.at += 1
            if not self.text.startswith("\n", self.at):
                self._add(parts, min(self.at + 1, len(self.text)), quoted=True)
            else:
                self.at += 1
        elif char == "$":
            self._dollar(parts, quoted=quoted)
        elif char == "`":
            self._expansion(parts, "command", 1, self._backtick(start), quoted=quoted)
        elif char in "<>" and self.text.startswith("(", start + 1):
            self._expansion(parts, "command", 2, self._closing(start + 2, ")"), quoted=quoted)
        else:
            return False
        return True

    def _add(self, parts: list[Part], end: int, *, quoted: bool) -> None:
        text = self.text[self.at : end]
        parts.append(Part("text", text, text, self.source.line(self.at), quoted))
        self.at = end

    def _add_lines(self, parts: list[Part], end: int) -> None:
        """Quoted text up to a position, one part a line."""
        while 0 <= (cut := self.text.find("\n", self.at, end)):
            self._add(parts, cut + 1, quoted=True)
        self._add(parts, end, quoted=True)

    def _single(self, parts: list[Part]) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self.source.fail(self.at, "the ' that opens here is never closed: close it")
        self.at += 1
        self._add_lines(parts, end)
        self.at = end + 1

    def _double(self, parts: list[Part]) -> None:
        opened = self.at
        self.at += 1
        self._add(parts, self.at, quoted=True)
        while self.at < len(self.text):
            match = re.compile(r'[^"\\$`]+').match(self.text, self.at)
            char = self.text[self.at]
            if match:
                self._add_lines(parts, match.end())
            elif char == '"':
                self.at += 1
                return
            elif char == "\\":
                after = self.text[self.at + 1 : self.at + 2]
                self.at += 2 if after == "\n" else after in '$`"\\'
                if after != "\n":
                    self._add(parts, min(self.at + 1, len(self.text)), quoted=True)
            elif char == "$":
                self._dollar(parts, quoted=True)
            else:
                self._expansion(parts, "command", 1, self._backtick(self.at), quoted=True)
        self.source.fail(opened, 'the " that opens here is never closed: close it')

    def _dollar(self, parts: list[Part], *, quoted: bool) -> None:
        start, after = self.at, self.text[self.at + 1 : self.at + 2]
        if after == "(":
            end = self._closing(start + 2, ")")
            if self.text.startswith("$((", start) and self.text.startswith("))", end - 2):
                self._expansion(parts, "arithmetic", 3, end, quoted=quoted, tail=2)
            else:
                self._expansion(parts, "command", 2, end, quoted=quoted)
        elif after == "{":
            end = self._closing(start + 2, "}", quoted=quoted)
            self._expansion(parts, "parameter", 2, end, quoted=quoted)
        elif after == "'" and not quoted:
            self._escaped(parts)
        elif after == '"' and not quoted:
            self.at += 1
            self._double(parts)
        elif match := _NAME.match(self.text, start + 1):
            self._expansion(parts, "parameter", 1, match.end(), quoted=quoted, tail=0)
        else:
            self._add(parts, start + 1, quoted=quoted)

    def _escaped(self, parts: list[Part]) -> None:
        """`$'...'`."""
        body = re.compile(r"\$'((?:[^'\\]|\\.)*+)'", re.DOTALL).match(self.text, self.at)
        if not body:
            self.source.fail(self.at, "the $' that opens here is never closed: close it")

        def decoded(found: re.Match[str]) -> str:
            code = found[1]
            if code[0] == "x" and len(code) > 1:
                return chr(int(code[1:], 16))
            return chr(int(code, 8) % 256) if code[0] in "01234567" else _ESCAPES.get(code, code)

        text = _ESCAPE.sub(decoded, body[1])
        parts.append(Part("text", text, body[0], self.source.line(self.at), quoted=True))
        self.at = body.end()

    def _expansion(
        self,
        parts: list[Part],
        kind: Literal["parameter", "command", "arithmetic"],
        head: int,
        end: int,
        *,
        quoted: bool,
        tail: int = 1,
    ) -> None:
        written = self.text[self.at : end]
        body = written[head : len(written) - tail]
        parts.append(Part(kind, body, written, self.source.line(self.at), quoted))
        self.at = end

    @staticmethod
    def _in_quotes(opened: list[str], *, quoted: bool) -> bool:
        """Do the innermost braces stand between double quotes?"""
        return quoted if len(opened) == 1 else opened[-2] == '"'

    def _past_document(self, start: int) -> int:
        """Past a here-document inside a command substitution."""
        head = _DOCUMENT.match(self.text, start)
        if not head:
            return start + 2
        end = re.compile(rf"\n\t*{re.escape(head[2])}(?=\n|$)").search(self.text, head.end())
        return end.end() if end else head.end()

    def _backtick(self, start: int) -> int:
        match = re.compile(r"`(?:[^`\\]|\\.)*+`", re.DOTALL).match(self.text, start)
        if not match:
            self.source.fail(start, "the ` that opens here is never closed: close it")
        return match.end()

    def _closing(self, start: int, close: str, *, quoted: bool = False) -> int:
        """Past the end of what was opened before `start`, whatever stands inside."""
        opened, at = [close], start
        while match := _INSIDE.search(self.text, at):
            char, at, inner = match[0], match.end(), opened[-1]
            if char == "\\":
                at += 1
            elif char == inner:
                opened.pop()
                if not opened:
                    return at
            elif char[0] == "<":
                at = self._past_document(match.start()) if inner == ")" else at
            elif (
                char == "'"
                and inner != '"'
                and (inner != "}" or not self._in_quotes(opened, quoted=quoted))
            ):
                end = self.text.find("'", at)
                at = end + 1 if end >= 0 else len(self.text)
            elif char == '"':
                opened.append('"')
            elif char == "`":
                at = self._backtick(match.start())
            elif char == "$" and self.text[at : at + 1] in ("(", "{"):
                opened.append(")" if self.text[at] == "(" else "}")
                at += 1
            elif char == "(" and inner == ")":
                opened.append(")")
            elif char == "#" and inner == ")" and self.text[match.start() - 1] in " \t\n":
                end = self.text.find("\n", at)
                at = end if end >= 0 else len(self.text)
        self.source.fail(start - 1, f"what opens here is never closed: add a `{close}`")
