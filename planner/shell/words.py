"""Words of the shell in pieces: quotes, escapes, and what is to expand.

Source: POSIX.1-2024, Shell Command Language, sections 2.2 and 2.6; GNU Bash manual 5.2.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from trainplan.costmodel.base import PlanError
from trainplan.planner.shell.launch import Place


class ShellError(PlanError):
    """Text that no shell would take, or that is too deep or too large to read."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text with the lines that it stands on."""

    text: str
    starts: Sequence[int]
    """Where in `text` something of another line begins; the first is 0."""
    places: Sequence[Place]
    """Of what begins there."""

    def place(self, at: int) -> Place:
        """Of a position."""
        return self.places[bisect_right(self.starts, at) - 1]

    def fail(self, at: int, what: str) -> NoReturn:
        """Refuse the text at a position."""
        refuse(self.place(at), what)


def refuse(place: Place, what: str) -> NoReturn:
    """Refuse the text at a place."""
    line = f", line {place.line}" if place.line is not None else ""
    raise ShellError(f"{place.file or 'the command'}{line}: {what}")


def source_of(text: str, file: str | None) -> Source:
    """A whole file."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        refuse(Place(file, line), "a NUL byte: this is no shell script, name another")
    text = text.replace("\r\n", "\n")
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return Source(text, starts, [Place(file, line) for line in range(1, len(starts) + 1)])


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a word: text without its quotes, or something to expand."""

    kind: Literal["text", "parameter", "command", "arithmetic"]
    text: str
    """Of an expansion, what stands inside."""
    written: str
    place: Place
    quoted: bool


_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>()]+")
# `<path to the data>`, which templates leave for their readers: no shell takes it.
BLANK_TO_FILL = re.compile(r"<[A-Za-z][^<>\n;&|()]*(?<! )>(?=[\s/_.,\"'-]|\Z)")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_DOCUMENT_LIMIT = 20_000
_INSIDE = re.compile(r"<<-?[ ]*['\"]?[A-Za-z_]|[\\'\"`()}$#]")
_DOCUMENT = re.compile(r"<<-?[ ]*(['\"]?)(\w+)\1[^\n]*(?=\n)")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = dict(zip("ntrabefv", "\n\t\r\a\b\x1b\f\v", strict=True))


class Words:
    """Reads pieces of words off a source."""

    def __init__(self, source: Source) -> None:
        self.source, self.text, self.at = source, source.text, 0

    def piece(self, parts: list[Part], *, quoted: bool) -> bool:
        """Read one piece of a word; false where the word ends."""
        if match := _PLAIN.match(self.text, self.at):
            self.add(parts, match.end(), quoted=quoted)
            return True
        char, start = self.text[self.at], self.at
        if char == "'":
            self._single(parts)
        elif char == '"':
            self._double(parts)
        elif char == "\\":
            self.at += 1
            if not self.text.startswith("\n", self.at):
                self.add(parts, min(self.at + 1, len(self.text)), quoted=True)
            else:
                self.at += 1
        elif char == "$":
            self._dollar(parts, quoted=quoted)
        elif char == "`":
            self._expansion(parts, "command", 1, self._backtick(start), quoted=quoted)
        elif match := BLANK_TO_FILL.match(self.text, start):
            self._expansion(parts, "command", 1, match.end(), quoted=quoted)
        elif char in "<>" and self.text.startswith("(", start + 1):
            self._expansion(parts, "command", 2, self.closing(start + 2, ")"), quoted=quoted)
        else:
            return False
        return True

    def add(self, parts: list[Part], end: int, *, quoted: bool) -> None:
        """Text up to a position is a piece."""
        text = self.text[self.at : end]
        parts.append(Part("text", text, text, self.source.place(self.at), quoted))
        self.at = end

    def _add_lines(self, parts: list[Part], end: int) -> None:
        """Quoted text up to a position, one part a line."""
        while (cut := self.text.find("\n", self.at, end)) >= 0:
            self.add(parts, cut + 1, quoted=True)
        self.add(parts, end, quoted=True)

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
        if self.text.startswith('"', self.at):
            self.add(parts, self.at, quoted=True)
        self.inside(parts, '"')
        if self.at >= len(self.text):
            self.source.fail(opened, 'the " that opens here is never closed: close it')
        self.at += 1

    def inside(self, parts: list[Part], close: str) -> None:
        """What stands between double quotes, or in a here-document, which no quote ends."""
        plain = re.compile(rf"[^\\$`{close}]+")
        while self.at < len(self.text) and (char := self.text[self.at]) != close:
            if match := plain.match(self.text, self.at):
                self._add_lines(parts, match.end())
            elif char == "\\":
                after = self.text[self.at + 1 : self.at + 2]
                self.at += 2 if after == "\n" else after in f"$`\\{close}"
                if after != "\n":
                    self.add(parts, min(self.at + 1, len(self.text)), quoted=True)
            elif char == "$":
                self._dollar(parts, quoted=True)
            else:
                self._expansion(parts, "command", 1, self._backtick(self.at), quoted=True)

    def _dollar(self, parts: list[Part], *, quoted: bool) -> None:
        start, after = self.at, self.text[self.at + 1 : self.at + 2]
        if after == "(":
            end = self.closing(start + 2, ")")
            if self.text.startswith("$((", start) and self.text.startswith("))", end - 2):
                self._expansion(parts, "arithmetic", 3, end, quoted=quoted, tail=2)
            else:
                self._expansion(parts, "command", 2, end, quoted=quoted)
        elif after == "{":
            end = self.closing(start + 2, "}")
            self._expansion(parts, "parameter", 2, end, quoted=quoted)
        elif after == "'" and not quoted:
            self._escaped(parts)
        elif after == '"' and not quoted:
            self.at += 1
            self._double(parts)
        elif match := _NAME.match(self.text, start + 1):
            self._expansion(parts, "parameter", 1, match.end(), quoted=quoted, tail=0)
        else:
            self.add(parts, start + 1, quoted=quoted)

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
        parts.append(Part("text", text, body[0], self.source.place(self.at), quoted=True))
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
        parts.append(Part(kind, body, written, self.source.place(self.at), quoted))
        self.at = end

    def _past(self, match: re.Match[str], *, in_command: bool) -> int:
        """Past what hides the ends of other things."""
        char, at = match[0], match.end()
        if char == "\\":
            return at + 1
        if char == "`":
            return self._backtick(match.start())
        if char[0] == "<":
            return self._past_document(match.start()) if in_command else at
        comment = char == "#" and in_command and self.text[at - 2] in " \t\n"
        if char == "'" or comment:
            end = self.text.find("\n" if comment else "'", at)
            return len(self.text) if end < 0 else end + (not comment)
        return at

    def _past_document(self, start: int) -> int:
        """Past a here-document inside a command substitution."""
        head = _DOCUMENT.match(self.text, start)
        if not head:
            return start + 2
        end = re.compile(rf"\n\t*{re.escape(head[2])}(?=\n|$)").search(
            self.text, head.end(), head.end() + _DOCUMENT_LIMIT
        )
        return end.end() if end else start + 2

    def _backtick(self, start: int) -> int:
        match = re.compile(r"`(?:[^`\\]|\\.)*+`", re.DOTALL).match(self.text, start)
        if not match:
            self.source.fail(start, "the ` that opens here is never closed: close it")
        return match.end()

    def closing(self, start: int, close: str) -> int:
        """Past the end of what was opened before `start`, whatever stands inside."""
        opened, at = [close], start
        while match := _INSIDE.search(self.text, at):
            char, at = match[0], match.end()
            if char == opened[-1]:
                opened.pop()
                if not opened:
                    return at
            elif char == '"' or (char == "(" and opened[-1] == ")"):
                opened.append('"' if char == '"' else ")")
            elif char == "$" and self.text[at : at + 1] in ("(", "{"):
                opened.append(")" if self.text[at] == "(" else "}")
                at += 1
            elif char != "'" or opened[-1] != '"':
                arithmetic = self.text[start] == "("
                at = self._past(match, in_command=opened[-1] == ")" and not arithmetic)
        self.source.fail(start - 1, f"what opens here is never closed: add a `{close}`")
