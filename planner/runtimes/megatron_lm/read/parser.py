"""The words after `pretrain_gpt.py`, as the runtime's own parser takes them.

Rules of Python's `argparse` with abbreviations off; the options are the recorded ones of the
release that the exporter writes for, so both sides know the same.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import resources
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Literal

from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments, Given, Option, shown
from trainplan.planner.runtimes.megatron_lm.read.cores import had, since
from trainplan.planner.runtimes.megatron_lm.read.patterns import integers, pattern
from trainplan.planner.runtimes.megatron_lm.read.releases import (
    Foreign,
    applied,
    dashed,
    foreign_problems,
    instead,
    is_own,
    is_translated,
    meaning,
    own_words,
    spelling,
    value_of,
)
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM
from trainplan.planner.shell import Problem, Word, way_to_state

LARGEST = 10**12
"""Of a whole number; no option means more, and lists of so many entries would fill the memory."""
LATEST = 99
"""Of releases: where none is stated, this one, which has every option."""
SLIP = 0.95
"""Share of letters in common of a slip. Source: assumed; one letter of the shortest options."""
HELPED = 50
"""Of so many problems the likely meaning is looked for; a file with more is another program's."""
OF_PACKAGE = ("--export-", "--modelopt-enabled", "--enable-gpt-oss", "--finetune-")
"""Beginnings of options that only the package nvidia-modelopt adds.

Source: `megatron/post_training/arguments.py`; `pretrain_gpt.py:526`.
"""
ActionKind = Literal["store", "store_true", "store_false", "boolean"]


@cache
def options() -> Mapping[str, Option]:
    """Every option of the release, by its name."""
    recorded = resources.files("trainplan.planner.runtimes").joinpath(MEGATRON_LM.recorded_flags)
    entries: dict[str, dict[str, Any]] = json.loads(recorded.read_text("utf-8"))["flags"]
    return MappingProxyType({flag: _option(flag, entry) for flag, entry in entries.items()})


def _option(flag: str, entry: Mapping[str, Any]) -> Option:
    action: ActionKind = entry.get("action", "store")
    off = {"store": None, "store_true": False, "store_false": True, "boolean": None}[action]
    choices = entry.get("choices")
    return Option(
        flag=flag,
        dest=entry.get("dest", flag.removeprefix("--").replace("-", "_")),
        action=action,
        nargs=entry.get("nargs"),
        type=entry.get("type", "str"),
        choices=None if choices is None else tuple(map(str, choices)),
        default=_frozen(entry.get("default", off)),
    )


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def parse(
    words: Sequence[Word], *, strict: bool = True, core: int | None = None
) -> tuple[Arguments, tuple[Problem, ...]]:
    """What the words set, and what the parser would stop at; the last of a repeated option wins.

    Where it is not `strict`, options of other releases and of forks are taken for what they mean,
    and those that nobody knows are no fault. `core`: the release of Megatron Core that runs, by its
    number; its options are those that it had.
    """
    parser = _Parser(deque(words), strict, core)
    parser.run()
    arguments = Arguments({one.dest: one for one in options().values()}, parser.given, parser.own)
    later = tuple(parser.later(strict=strict))
    if strict:
        plain = not parser.own and not parser.renamed
        whole = arguments if plain else applied(arguments, unbiased=False)
        return whole, (*parser.problems, *later)
    notes = foreign_problems(parser.unknown, {**parser.renamed, **own_words(parser.own)})
    spelled = spelling(parser.underscored)
    unbiased = len(parser.underscored) > len(parser.given) // 2
    return applied(arguments, unbiased=unbiased), (*notes, *later, *parser.problems, *spelled)


@dataclass(slots=True)
class _Parser:
    rest: deque[Word]
    strict: bool
    core: int | None
    given: dict[str, Given] = field(default_factory=dict)
    own: dict[str, Given] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unknown: list[Foreign] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    """What options of other releases were taken as."""
    last: Word | None = None
    underscored: list[Word] = field(default_factory=list)

    def run(self) -> None:
        """Take word after word."""
        while self.rest:
            word = self.rest.popleft()
            if not word.text.startswith("--"):
                strays = (word, *self._taken(lambda w: not w.text.startswith("--")))
                self.problems += _strays(strays, self.last, strict=self.strict)
                continue
            self.last = word
            flag = word.text.partition("=")[0]
            if not self.strict and flag not in options() and dashed(flag) != flag:
                self.underscored.append(word)
                flag = dashed(flag)
            lax = not self.strict or (self.core is not None and had(flag, self.core))
            if lax and is_translated(flag):
                self._translated(flag, word)
            elif flag in options():
                self._option(options()[flag], word)
            else:
                self._taken(_is_value)
                if word.unresolved or not lax or flag.startswith(OF_PACKAGE):
                    near = len(self.problems) < HELPED
                    self.problems.append(_unknown(flag, word, near=near))
                else:
                    alike = len(self.unknown) < HELPED and get_close_matches(
                        flag, options(), 1, SLIP
                    )
                    self.unknown.append(Foreign(flag, word.place, *(alike or ())))

    def later(self, *, strict: bool) -> Iterator[Problem]:
        """Options that came after the release that runs."""
        newer = [one for one in self.given.values() if since(one.flag) > (self.core or LATEST)]
        for one in newer:
            says = (
                f"{one.flag} is of Megatron Core 0.{since(one.flag)} and later, not of "
                f"0.{self.core}: take it out, or run a newer release"
            )
            yield Problem("later_flag", "illegal" if strict else "unread", says, one.place)

    def _option(self, option: Option, word: Word) -> None:
        _, equals, attached = word.text.partition("=")
        follow = tuple(takewhile(_is_value, self.rest))
        if equals:
            follow = (Word(attached, word.place, word.unresolved),)
        taken = follow[: _most(option)]
        if not self.strict:
            taken = tuple(value_of(option.flag, value) for value in taken)
        self.problems += _wrong(option, word, taken, attached=bool(equals), strict=self.strict)
        self.given[option.dest] = _given(option, word, taken)
        for _ in () if equals else taken:
            self.last = self.rest.popleft()

    def _translated(self, flag: str, word: Word) -> None:
        """An option of another release or a fork, as words of this one or as what it means."""
        name, equals, attached = word.text.partition("=")
        value = (Word(attached, word.place, word.unresolved),) if equals else ()
        values = value or self._taken(_is_value)
        now = meaning(flag, values)
        if now is not None and len(self.renamed) < HELPED:
            self.renamed[name] = now.replace(" {}", "")
            self.rest.extendleft(reversed(_written(now, word, values)))
        elif is_own(flag):
            text = values[0].text if values else ""
            self.own[flag[2:].replace("-", "_")] = Given(text, flag, word.text, word.place)
        else:
            self.unknown.append(Foreign(name, word.place))

    def _taken(self, wanted: Callable[[Word], bool]) -> tuple[Word, ...]:
        """The next words, as long as they are of a kind."""
        found = tuple(takewhile(wanted, self.rest))
        for _ in found:
            self.rest.popleft()
        return found


def _written(text: str, word: Word, values: Sequence[Word]) -> list[Word]:
    """Words of this release, where those stand that mean them."""
    found: list[Word] = []
    for part in text.split(" "):
        found += values if part == "{}" else [Word(part, word.place)] if part else []
    return found


def _is_value(word: Word) -> bool:
    """Negative numbers are values, for no option looks like one; an unknown `$X` may be."""
    text = word.text
    return not text.startswith("-") or _number(text) or len(text) == 1 or " " in text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _most(option: Option) -> int | None:
    """Values it takes at most; null: all that follow."""
    if option.action != "store":
        return 0
    if isinstance(option.nargs, int):
        return option.nargs
    return 1 if option.nargs is None else None


def _wrong(
    option: Option, word: Word, taken: Sequence[Word], *, attached: bool, strict: bool
) -> Iterator[Problem]:
    """What `argparse` says of the values of one option; a choice may be one of a fork."""
    least = {"+": 1, "*": 0, None: 1}.get(option.nargs, option.nargs)  # type: ignore[arg-type]
    if option.action != "store":
        if attached:
            says = f"{option.flag} is a switch and takes no value: write it alone, or leave it out"
            yield Problem("bad_value", "illegal", says, word.place)
        return
    if isinstance(least, int) and len(taken) < least:
        says = f"{option.flag} needs {least} value{'s' if least > 1 else ''}: write it behind"
        yield Problem("missing_value", "illegal" if strict else "unread", says, word.place)
    for value in taken:
        if not value.unresolved and (wanted := _refused(option, value.text)):
            says = f"{option.flag} {shown(value.text)}"
            if option.choices is None or strict:
                yield Problem("bad_value", "illegal", f"{says}: expected {wanted}", value.place)
            else:
                usual = shown(str(option.default)) if option.default else "nothing"
                says += f": a value of a fork or another release; taken as {usual}, the default"
                yield Problem("foreign_value", "unread", says, value.place)


def _refused(option: Option, text: str) -> str | None:
    """What was expected instead; null: the text is taken."""
    try:
        value = convert(option, text)
    except ValueError:
        kinds = {"int": "a whole number", "float": "a number", "integers": "whole numbers"}
        return kinds.get(option.type, "a number, or a list such as ([0]*3+[1]*58)")
    if option.choices is not None and str(value) not in option.choices:
        return "one of " + ", ".join(option.choices)
    return None


def convert(option: Option, text: str) -> object:
    """The value as the runtime has it.

    Raises:
        ValueError: It cannot be one.
    """
    if option.type == "int":
        number = int(text)
        if abs(number) > LARGEST:
            raise ValueError("too large")
        return number
    if option.type == "float":
        return float(text)
    if option.type == "pattern":
        return pattern(text)
    return integers(text) if option.type == "integers" else text


def _given(option: Option, word: Word, taken: Sequence[Word]) -> Given:
    unresolved = tuple(name for value in (word, *taken) for name in value.unresolved)
    written = " ".join((word.text, *(v.text for v in taken if v.text not in word.text)))
    return Given(_value(option, taken), option.flag, written, word.place, unresolved)


def _value(option: Option, taken: Sequence[Word]) -> object:
    """Default where it cannot be read; a problem says so."""
    if option.action != "store":
        negative = option.action == "store_false" or option.flag.startswith("--no-")
        return option.action == "store_true" or (option.action == "boolean" and not negative)
    if not taken or any(value.unresolved or _refused(option, value.text) for value in taken):
        return option.default
    values = tuple(convert(option, value.text) for value in taken)
    return values[0] if option.nargs is None else values


def _strays(words: Sequence[Word], before: Word | None, *, strict: bool) -> Iterator[Problem]:
    """Words of no option: each that only a run tells, and one problem of all others."""
    yield from (_unread(word) for word in words if word.unresolved)
    known = [word for word in words if not word.unresolved]
    if known:
        behind = f" behind {before.text[:40]!r}" if before else ""
        texts = ", ".join(repr(word.text[:40]) for word in known[:3]) + ", ..." * (len(known) > 3)
        says = f"{texts}{behind} belongs to no option: take it out, or quote it as one value"
        yield Problem("unknown_flag", "illegal" if strict else "unread", says, known[0].place)


def _unread(word: Word) -> Problem:
    says = (
        f"{shown(word.text)} is known to a run alone and taken for nothing: give what it holds "
        f"{way_to_state(word.unresolved)}"
    )
    return Problem("unread_words", "unread", says, word.place)


def _unknown(flag: str, word: Word, *, near: bool) -> Problem:
    """What is wrong with it; `near`: and which option may be meant."""
    if word.unresolved:
        return _unread(word)
    if flag.startswith(OF_PACKAGE):
        says = f"{shown(flag)} is an option where nvidia-modelopt is installed, and nowhere else"
        return Problem("package_flag", "unread", says, word.place)
    if newer := instead(flag):
        now = f"now {newer}"
    else:
        close = get_close_matches(flag, options(), n=1, cutoff=0.8) if near else []
        now = f"did you mean {close[0]}?" if close else "take it out"
    says = f"{shown(flag)} is no option of this release: {now}"
    return Problem("unknown_flag", "illegal", says, word.place)
