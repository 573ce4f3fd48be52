"""Simple commands of a script: assignments, conditions, and the launches that are looked for."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from trainplan.planner.shell.conditions import Operand, Verdict, verdict
from trainplan.planner.shell.expand import Expander
from trainplan.planner.shell.launch import COMMAND_LINE, Launch, Place, Problem, Word
from trainplan.planner.shell.lexer import Token
from trainplan.planner.shell.slurm import Allocation
from trainplan.planner.shell.starters import Command, Surroundings, command_of, launch_of
from trainplan.planner.shell.variables import (
    Piece,
    Value,
    Variables,
    clipped,
    names_of,
    text_of,
    word_of,
)
from trainplan.planner.shell.words import Part, Source

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*(?:\[[^\]]*\])?)(\+?)=(.*)", re.DOTALL)
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SETS = frozenset(
    {"source", ".", "set", "shift", "unset", "printf"}
    | {"read", "mapfile", "readarray", "getopts", "let"}
)
_CHANGED = re.compile(r"\s*([A-Za-z_]\w*)\s*(=(?!=)|[-+*/%]=|\+\+|--)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simple command did."""

    status: Verdict = True
    """Null: only a run would tell."""
    calls: str | None = None
    """A function of the script, with `arguments`."""
    runs: Source | None = None
    """Text that is a script of its own."""
    outer: tuple[Word, ...] = ()
    """What stood before that text: srun and others."""
    arguments: tuple[Value, ...] = ()
    is_program: bool = False
    leaves: str | None = None
    """`exit` or `return`."""


_PLAIN = {
    **dict.fromkeys(("echo", "cd", "mkdir", "true", ":", "trap"), Outcome()),
    "false": Outcome(status=False),
    "exit": Outcome(leaves="exit"),
    "return": Outcome(leaves="return"),
}


class Commands:
    """Carries out what can be carried out without running anything."""

    def __init__(self, variables: Variables, job: Allocation, *, under_slurm: bool) -> None:
        self.variables, self.job = variables, job
        self.expander = Expander(variables, under_slurm=under_slurm)
        self.outer: tuple[Word, ...] = ()
        """Around the text that is read: `srun bash -c`."""
        self.doubts: tuple[Problem, ...] = ()
        """Why it is not certain that a command runs."""
        self.certain = True
        """It runs if the function that it stands in does."""
        self.launches: list[Launch] = []
        self.problems: list[Problem] = []
        """Of the script so far, for every launch behind them."""
        self.asks: list[str] = []
        """What the last condition depends on and only a run would tell."""
        self.scripts: list[Word] = []
        """Other scripts that it runs."""

    def carry_out(self, tokens: Sequence[Token], functions: Collection[str]) -> Outcome:
        """Do one simple command."""
        set_first = list(takewhile(assignment, tokens))
        tokens = tokens[len(set_first) :]
        if not tokens:
            for token in set_first:
                self._assign(token)
            return Outcome()
        name, place = tokens[0].text, tokens[0].place
        if tokens[0].kind == "arithmetic":
            return Outcome(self._arithmetic(tokens[0]))
        if name == "[[" or name in _DECLARES:
            return self._declare(tokens) if name != "[[" else Outcome(self._test(tokens[1:-1]))
        tested = name in ("[", "test")
        fields = [f for token in tokens for f in self.expander.fields(token.parts, tested=tested)]
        if tested:
            ends = len(fields) - (name == "[")
            return Outcome(self._verdict([Operand(field) for field in fields[1:ends]]))
        if fields and text_of(fields[0]) in functions:
            return Outcome(calls=text_of(fields[0]), arguments=tuple(fields[1:]))
        return self._named(fields, place, set_first) if fields else Outcome()

    def _named(self, fields: list[Value], place: Place, set_first: list[Token]) -> Outcome:
        """A command that is no syntax of the shell."""
        name, arguments = text_of(fields[0]), tuple(fields[1:])
        if name == "eval":
            text = tuple(p for a in arguments for p in (Piece(" ", place), *a))
            return Outcome(None, runs=self._source(text))
        if name in _PLAIN:
            return _PLAIN[name]
        if name not in _SETS:
            return self._start(fields, place, set_first)
        if name in ("source", "."):
            what = text_of(arguments[0]) if arguments else name
            self.unread(f"{clipped(what)} may set variables and was not read", place)
        elif name in ("set", "shift"):
            self._arguments(name, arguments)
        elif name == "unset":
            for argument in arguments:
                self.variables.put(text_of(argument), None)
        elif name != "printf" or [text_of(a) for a in arguments[:1]] == ["-v"]:
            kept = arguments[1:2] if name == "printf" else arguments
            self._forget([text_of(argument) for argument in kept], name, place)
        return Outcome()

    def unread(self, what: str, place: Place) -> None:
        """Something of which only a run would tell what it does to the variables."""
        says = f"{what}: give --set NAME=VALUE for what it changes"
        self.problems.append(Problem("shell_unread", "unread", says, place))

    def _start(self, fields: list[Value], place: Place, set_first: list[Token]) -> Outcome:
        """A program: perhaps a launch."""
        words = [word_of(field, place) for field in fields]
        command = command_of(words)
        if command.starter == "script":
            self.scripts.append(command.rest[0])
        elif command.starter == "shell" and command.rest:
            text = fields[len(fields) - len(command.rest)]
            if text_of(text) != command.rest[0].text:
                text = (Piece(command.rest[0].text, place),)
            arguments = tuple(fields[len(fields) - len(command.rest) + 2 :])
            return Outcome(
                None, None, self._source(text), command.outer, arguments, is_program=True
            )
        elif command.starter:
            self._add(command, set_first, place)
        return Outcome(None, is_program=True)

    def _add(self, command: Command, set_first: list[Token], place: Place) -> None:
        """Keep a launch, if it is one."""
        variables = self.variables
        environment = {
            name: word_of(held, place)
            for name in sorted(variables.exported)
            if (held := variables.held.get(name)) is not None and not isinstance(held, dict)
        }
        for token in set_first:
            if parts := assignment(token):
                value = self.expander.joined(parts[2])
                environment[parts[0]] = word_of(value, place)
        problems = (*self.problems, *self.doubts)
        variables.charge(len(environment) + len(problems) + len(variables.unread), place)
        around = Surroundings(environment, self.job, self.outer, problems)
        launch = launch_of(command, around)
        if launch is None:
            return
        words = (launch.program, *launch.arguments, *launch.starter_arguments)
        counts = (word for word in (launch.nodes, launch.gpus_per_node) if word)
        names = dict.fromkeys(name for word in (*words, *counts) for name in word.unresolved)
        why = [p for name, p in variables.unread.items() if name in names or name[0] == "+"]
        self.launches.append(
            replace(launch, problems=tuple(dict.fromkeys((*why, *launch.problems))))
        )

    def _source(self, value: Value) -> Source:
        """Text to be read as a script."""
        starts, at = [], 0
        kept = [piece for piece in value if piece.text] or [Piece("", COMMAND_LINE)]
        for piece in kept:
            starts.append(at)
            at += len(piece.text)
        return Source(text_of(value), starts, [p.place for p in kept])

    def _assign(self, token: Token) -> None:
        """`NAME=value` and its kin."""
        parts = assignment(token)
        if parts is None:
            return
        name, append, value = parts
        if token.elements is None:
            self.variables.assign(name, self.expander.joined(value), token.place, append=append)
            return
        elements: list[tuple[str | None, Value]] = []
        for element in token.elements:
            keyed = _KEYED.match(element.parts[0].text) if element.parts else None
            if keyed and not element.parts[0].quoted:
                first = replace(element.parts[0], text=element.parts[0].text[keyed.end() :])
                elements.append(
                    (keyed[1].strip("\"'"), self.expander.joined((first, *element.parts[1:])))
                )
            else:
                elements += [(None, value) for value in self.expander.fields(element.parts)]
        self.variables.extend(name, elements, token.place, append=append)

    def _declare(self, tokens: Sequence[Token]) -> Outcome:
        """`export`, `declare`, `local`, `readonly`."""
        exports = tokens[0].text == "export"
        for token in tokens[1:]:
            if parts := assignment(token):
                self._assign(token)
                names = [parts[0]]
            else:
                names = [text_of(field) for field in self.expander.fields(token.parts)]
            exports = exports or (names[:1] != [] and names[0][:1] == "-" and "x" in names[0])
            if exports:
                self.variables.exported.update(name for name in names if name.isidentifier())
        return Outcome()

    def _test(self, tokens: Sequence[Token]) -> Verdict:
        """What stands between `[[` and `]]`."""
        operands = []
        for token in tokens:
            value = self.expander.joined(token.parts, tested=True)
            operands.append(Operand(value, self.expander.pattern(token.parts)))
        return self._verdict(operands)

    def _verdict(self, operands: Sequence[Operand]) -> Verdict:
        self.asks += [name for operand in operands for name in names_of(operand.value)]
        return verdict(operands)

    def _arithmetic(self, token: Token) -> Verdict:
        """`((...))`: an assignment or a condition."""
        if match := _CHANGED.fullmatch(token.text):
            name, does, rest = match.groups()
            body = rest if does == "=" else f"{name}{does[0]}({rest or 1})"
            number, unknown = self.expander.number(body, token.place)
            written = f"$(({token.text}))" if number is None else str(number)
            self.variables.assign(name, (Piece(written, token.place, unknown),), token.place)
            return None
        number, _ = self.expander.number(token.text, token.place, tested=True)
        return None if number is None else number != 0

    def _arguments(self, name: str, arguments: Sequence[Value]) -> None:
        """`set -- ...` and `shift`."""
        held = self.variables.positional
        if name == "shift":
            count = text_of(arguments[0]) if arguments else "1"
            self.variables.charge(len(held or ()), COMMAND_LINE)
            known = held is not None and count.isdecimal() and self.certain
            self.variables.positional = held[int(count[:9]) :] if known and held else None
        elif any(text_of(argument) == "--" for argument in arguments):
            at = next(n for n, argument in enumerate(arguments) if text_of(argument) == "--")
            self.variables.positional = list(arguments[at + 1 :]) if self.certain else None

    def _forget(self, names: Sequence[str], command: str, place: Place) -> None:
        for name in names:
            plain = name.partition("=")[0]
            if plain.isidentifier():
                says = f"{plain} is set by {command}, known only in a run: give --set {plain}=VALUE"
                problem = Problem("shell_unread", "unread", says, place)
                self.variables.forget(plain, problem)


_KEYED = re.compile(r"\[([^\]]*)\]=")


def assignment(token: Token) -> tuple[str, bool, tuple[Part, ...]] | None:
    """Name, whether it is appended, and value of `NAME=value`; null: it is none."""
    if token.kind != "word" or not token.parts or token.parts[0].quoted:
        return None
    first = token.parts[0]
    match = _ASSIGNMENT.fullmatch(first.text) if first.kind == "text" else None
    if not match:
        return None
    rest = replace(first, text=match[3])
    return match[1], bool(match[2]), (rest, *token.parts[1:])
