"""Simple commands of a script: assignments, conditions, and the launches that are looked for."""

import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

from trainplan.planner.shell.arithmetic import evaluated
from trainplan.planner.shell.conditions import Operand, Verdict, verdict
from trainplan.planner.shell.expand import Expander
from trainplan.planner.shell.launch import COMMAND_LINE, Launch, Place, Problem, Word
from trainplan.planner.shell.lexer import Lexer, Token
from trainplan.planner.shell.options import PROGRAMS
from trainplan.planner.shell.printed import PRINTING, fields_of, printed
from trainplan.planner.shell.slurm import Allocation, allocation_of, directives
from trainplan.planner.shell.starters import (
    QUEUES,
    Command,
    Surroundings,
    basename,
    behind,
    command_of,
    launch_of,
    set_by,
)
from trainplan.planner.shell.variables import (
    Piece,
    Value,
    Variables,
    clipped,
    names_of,
    text_of,
    word_of,
)
from trainplan.planner.shell.words import Part, ShellError, Source, source_of

Reads = Callable[[str], str | None]
"""Text of a file by its name; null: it may not be opened."""

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*(?:\[[^\]]*\])?)(\+?)=(.*)", re.DOTALL)
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_CHANGED = re.compile(r"\s*([A-Za-z_]\w*)\s*(=(?!=)|[-+*/%]=|\+\+|--)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Simple:
    """A command of words."""

    fields: list[Value]
    place: Place
    set_first: Sequence[Token]
    """`NAME=value` before it."""

    @property
    def texts(self) -> list[str]:
        """Of its words."""
        return [text_of(field) for field in self.fields]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simple command did."""

    status: Verdict = True
    """Null: only a run would tell."""
    calls: str | None = None
    """A function of the script, with `arguments`."""
    runs: Sequence[Token] | None = None
    """A script of its own."""
    file: str | None = None
    """Of that script."""
    outer: tuple[Word, ...] = ()
    """What stood before it: srun and others."""
    job: Allocation | None = None
    """That it is queued with."""
    arguments: tuple[Value, ...] | None = None
    """Null: those of the script that stands around it."""
    given: Mapping[str, Value] = field(default_factory=dict)
    """Variables that are set for it."""
    is_program: bool = False
    leaves: str | None = None
    """`exit`, `return`, `break` or `continue`."""


_PLAIN = {
    **dict.fromkeys(("mkdir", "true", ":", "trap"), Outcome()),
    "false": Outcome(status=False),
    **{name: Outcome(leaves=name) for name in ("exit", "return", "break", "continue")},
}
_DEEPEST = 100
"""Frames around a file that is still opened."""
_LEXED = 8
"""Work of a character of it."""
_HERE = re.compile(r"(?:\$\{?(?:PWD|SLURM_SUBMIT_DIR|PBS_O_WORKDIR)\}?)/")
_SETS_NOTHING = re.compile(
    r"(?:.*/)?bin/activate|/etc/profile(?:\.d/.*)?|.*/(?:conda|lmod)\.sh|.*/lmod/.*"
)
"""Sourced files that find programs alone: environments of Python, modules."""
_PRINTS = re.compile(rf"\s*(?:{'|'.join(PRINTING)})\b")
_DEEPEST_PRINTED = 40
"""Command substitutions in one another."""
_TO = re.compile(r"[1&]?>[>|]?")


class Commands:
    """Carries out what can be carried out without running anything."""

    def __init__(
        self, variables: Variables, job: Allocation, read: Reads, *, under_slurm: bool
    ) -> None:
        self.variables, self.job, self.read = variables, job, read
        self.expander = Expander(variables, under_slurm=under_slurm)
        self.expander.substituted = self._substituted
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
        """Other scripts that it runs and that were not opened."""
        self.depth = 0
        """Frames that are open."""
        self.written: dict[str, Value | None] = {}
        """Files that the script writes; null: only a run would tell what."""
        self.folder: Value | None = (Piece(".", COMMAND_LINE),)
        """Where it is; null: not known."""
        self.given: Value | None = None
        """What the command is given to read."""
        self.printed: Value | None = None
        """What it prints, where that is known."""

    def begin_condition(self) -> None:
        """What was tested before has no part in it."""
        self.asks, self.expander.finds_unset = [], False

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
            return Outcome(self.arithmetic(tokens[0]))
        if name == "[[" or name in _DECLARES:
            return self._declare(tokens) if name != "[[" else Outcome(self._test(tokens[1:-1]))
        redirects = [redirect for token in tokens for redirect in token.redirects]
        self._redirect(redirects)
        tested = name in ("[", "test")
        fields = [f for token in tokens for f in self.expander.fields(token.parts, tested=tested)]
        if tested:
            ends = len(fields) - (name == "[")
            return Outcome(self._verdict([Operand(field) for field in fields[1:ends]]))
        if fields and text_of(fields[0]) in functions:
            return Outcome(calls=text_of(fields[0]), arguments=tuple(fields[1:]))
        outcome = self._named(Simple(fields, place, set_first)) if fields else Outcome()
        self._keep(fields, redirects)
        return outcome

    def _named(self, one: Simple) -> Outcome:
        """A command that is no syntax of the shell."""
        builtin = _BUILTINS.get(one.texts[0], Commands._start)
        return _PLAIN.get(one.texts[0]) or builtin(self, one)

    def _eval(self, one: Simple) -> Outcome:
        text = tuple(p for value in one.fields[1:] for p in (Piece(" ", one.place), *value))
        return Outcome(None, runs=self._lexed(self._source(text)))

    def _print(self, one: Simple) -> Outcome:
        """Commands that do nothing but print."""
        name, file = one.texts[0], one.fields[1:2]
        if name == "xargs" and file:
            return self._start(one)
        if name == "echo":
            words = [f for f in one.fields[1:] if text_of(f) != "-n"]
            echoed = tuple(p for f in words for p in (Piece(" ", one.place), *f))
            self.printed = (*echoed[1:], Piece("\n", one.place))
        elif name == "pwd":
            self.printed = self.folder
        elif name == "cat" and file:
            source = self._opened(word_of(file[0], one.place))
            self.printed = (Piece(source.text, source.places[0]),) if source else None
        elif name in ("cat", "tee"):
            self.printed = self.given
        elif not any(names_of(value) for value in (*one.fields, self.given or ())):
            text = printed(name, one.texts[1:], text_of(self.given or ()))
            self.printed = None if text is None else (Piece(text, one.place),)
        return Outcome(None, is_program=True)

    def _cd(self, one: Simple) -> Outcome:
        to, old = one.fields[-1], self.folder
        if one.texts[-1][:1] not in ("/", "$", "~", "`") and old is not None:
            to = (*old, Piece("/", one.place), *to)
        if not names_of(to):
            to = (Piece(posixpath.normpath(text_of(to)), one.place),)
        self.folder = to if self.certain and one.texts[1:] else None
        return Outcome()

    def _include(self, one: Simple) -> Outcome:
        """`source`."""
        file = word_of(one.fields[1], one.place) if one.fields[1:] else None
        if file and (tokens := self._lexed(self._opened(file))) is not None:
            more = tuple(one.fields[2:]) or None
            return Outcome(None, runs=tokens, file=file.text, arguments=more)
        if file and _SETS_NOTHING.fullmatch(file.text):
            return Outcome()
        what = clipped(file.text) if file else one.texts[0]
        says = f"{what} may set variables and was not read"
        says += ": give --set NAME=VALUE for what it changes"
        self.problems.append(Problem("shell_unread", "unread", says, one.place))
        return Outcome()

    def _unset(self, one: Simple) -> Outcome:
        """`unset`, `let`."""
        for text in one.texts[1:]:
            if one.texts[0] == "let":
                self.arithmetic(Token("arithmetic", text, one.place))
            else:
                self.variables.put(text, None)
        return Outcome()

    def _set(self, one: Simple) -> Outcome:
        """`set -- ...`, `set -a`."""
        if "--" in one.texts:
            at = one.texts.index("--") + 1
            self.variables.positional = one.fields[at:] if self.certain else None
        elif any(re.fullmatch(r"[-+]\w*a\w*|allexport", text) for text in one.texts[1:]):
            self.variables.exports_all = one.texts[1][0] == "-"
        return Outcome()

    def _shift(self, one: Simple) -> Outcome:
        held, count = self.variables.positional, "".join(one.texts[1:]) or "1"
        self.variables.charge(len(held or ()), one.place)
        is_known = count.isdecimal() and self.certain
        self.variables.positional = (
            held[int(count[:9]) :] if held is not None and is_known else None
        )
        return Outcome()

    def _read(self, one: Simple) -> Outcome:
        """`read A B`, `read -a A`, `mapfile A`: of what they are given."""
        name = one.texts[0]
        names, options = [], {"d": "\n"}
        for before, text in pairwise(one.texts):
            if name == "read" and re.fullmatch(r"-\w*[adpntuNi]", before):
                options[before[-1]] = text
            elif text[:1] != "-":
                names.append(text)
        array = options.get("a") or ("".join(names[:1]) if name != "read" else "")
        if self.given is None or (array and names_of(self.given)):
            return self._forget([*names, array], one)
        blanks, text, unknown = (
            self._before(one.set_first),
            text_of(self.given),
            names_of(self.given),
        )
        if name == "read" and not unknown:
            text = text.partition(options["d"])[0] if options["d"] else text
            ifs = text_of(blanks["IFS"]) if "IFS" in blanks else None
            fields = fields_of(text, ifs, 0 if array else len(names))
        else:
            fields = [f"${each}" for each in names] if unknown else text.rstrip("\n").split("\n")
        values: list[Value] = [(Piece(text, one.place, unknown),) for text in fields]
        if array:
            self.variables.extend(array, [(None, v) for v in values], one.place, append=False)
        for each, value in zip(
            () if array else names, [*values, *((),) * len(names)], strict=False
        ):
            self.variables.assign(each, value, one.place)
        return Outcome()

    def _getopts(self, one: Simple) -> Outcome:
        """`getopts SPEC NAME`."""
        variables, held = self.variables, self.variables.held.get("OPTIND")
        at = (evaluated(text_of(held)) if isinstance(held, tuple) else 1) or 1
        if variables.positional is None or len(one.texts) != 3:
            return self._forget([*one.texts[2:], "OPTARG"], one)
        option, *more = [text_of(v) for v in variables.positional[at - 1 : at + 1]] or [""]
        if option[:1] != "-" or option in ("-", "--"):
            return Outcome(status=False)
        takes = f"{option[1:2]}:" in one.texts[1]
        value = option[2:] or "".join(more) if takes else ""
        at += 2 if takes and not option[2:] else 1
        for name, text in ((one.texts[2], option[1:2]), ("OPTARG", value), ("OPTIND", str(at))):
            variables.assign(name, (Piece(text, one.place),), one.place)
        return Outcome(True if takes or len(option) == 2 else None)

    def _printf(self, one: Simple) -> Outcome:
        if one.texts[1:2] == ["-v"]:
            return self._forget(one.texts[2:3], one)
        ends = {"%s": "", r"%s\n": "\n"}.get("".join(one.texts[1:2]))
        if ends is not None:
            self.printed = tuple(p for f in one.fields[2:] for p in (*f, Piece(ends, one.place)))
        return Outcome()

    def _redirect(self, redirects: Sequence[tuple[str, Token]]) -> None:
        """What a command is given to read: by a pipe, `<<`, `<<<` or `<`."""
        self.given, self.printed = self.printed, None
        for operator, target in redirects:
            if operator[-1] == "<":
                self.given = self.expander.joined(target.parts)
            if operator == "<":
                source = self._opened(word_of(self.given or (), target.place))
                self.given = (Piece(source.text, source.places[0]),) if source else None

    def _substituted(self, part: Part) -> Value | None:
        """What `$(...)` prints, where its commands do nothing else."""
        text = re.sub(r"^\s*<", "cat <", part.text.removeprefix("builtin "))
        if not _PRINTS.match(text) or self.expander.depth > _DEEPEST_PRINTED:
            return None
        self.expander.depth += 1
        saved = self._swap(None, None, self.folder)
        tokens = self._lexed(Source(text, (0,), (part.place,))) or []
        command, piped = list[Token](), False
        try:
            for token in [*tokens, Token("operator", "\n", part.place)]:
                if token.kind == "word":
                    command.append(token)
                elif token.text not in (";", "\n", "&&", "|"):
                    return None
                elif command:
                    if command[0].text not in PRINTING or not (self.printed is None or piped):
                        return None
                    self.carry_out(command, ())
                    command, piped = [], token.text == "|"
        finally:
            _, found, _ = self._swap(*saved)
            self.expander.depth -= 1
        return found and (*found[:-1], found[-1]._replace(text=found[-1].text.rstrip("\n")))

    def _swap(
        self, given: Value | None, printed: Value | None, folder: Value | None
    ) -> tuple[Value | None, Value | None, Value | None]:
        """What is read and printed, and where, in place of what it was."""
        old = self.given, self.printed, self.folder
        self.given, self.printed, self.folder = given, printed, folder
        return old

    def _keep(self, fields: Sequence[Value], redirects: Sequence[tuple[str, Token]]) -> None:
        """Text that goes into files."""
        names = [(op, self.expander.joined(to.parts)) for op, to in redirects if _TO.fullmatch(op)]
        printed, is_tee = self.printed, bool(fields) and text_of(fields[0]) == "tee"
        for operator, name in [*names, *((">", to) for to in fields[1:] if is_tee)]:
            path = posixpath.normpath(text_of(name))
            old = self.written.get(path) if ">>" in operator else None
            self.written[path] = printed and (*(old or ()), *printed)
            self.variables.charge_values((self.written[path] or (),), COMMAND_LINE)
            self.printed = printed if is_tee else None

    def _opened(self, file: Word) -> Source | None:
        """Text that the script has written, or a file that stands beside it."""
        path = posixpath.normpath(file.text)
        value = self.written.get(path)
        if self.depth > _DEEPEST or path in self.written:
            return self._source(value) if value and self.depth <= _DEEPEST else None
        text = self.read(_HERE.sub("", file.text))
        return None if text is None else source_of(text, file.text)

    def _lexed(self, source: Source | None) -> list[Token] | None:
        """Null: it is no text of the shell."""
        self.variables.charge(len(source.text) * _LEXED if source else 0, COMMAND_LINE)
        try:
            return Lexer(source).tokens() if source else None
        except ShellError:
            return None

    def _start(self, one: Simple) -> Outcome:
        """A program: perhaps a launch."""
        if one.texts[0] in PROGRAMS["changes"]:
            self.written[posixpath.normpath(one.texts[-1])] = None
        command = command_of([word_of(field, one.place) for field in one.fields])
        more = one.fields[len(one.fields) - len(command.rest) :]
        if command.starter == "shell" and command.rest:
            whole = text_of(more[0]) == command.rest[0].text
            text = more[0] if whole else (Piece(command.rest[0].text, one.place),)
            return self._inside(command, self._source(text), more[2:], one.set_first)
        if command.starter == "script":
            source = self._source(self.given) if self.given and not more else None
            source = self._opened(command.rest[0]) if more else source
            if (found := self._inside(command, source, more[1:], one.set_first)).runs:
                return found
            self.scripts += command.rest[:1]
            command = behind(command)
        if command.starter:
            self._add(command, one.set_first, one.place)
        return Outcome(None, is_program=True)

    def _inside(
        self,
        command: Command,
        source: Source | None,
        arguments: Sequence[Value],
        set_first: Sequence[Token],
    ) -> Outcome:
        """A script that a program runs."""
        job, heads = None, [basename(word) for word in command.outer]
        file = command.rest[0].text if command.starter == "script" and command.rest else None
        if source and any(head in QUEUES for head in heads):
            job, _, problems = directives(source.text, file)
            others = (p for p in self.problems if p.cause != "sbatch_ignored")
            self.problems = [*others, *problems]
            job = allocation_of(command.outer).over(job)
        set_here = set_by(command.outer).items()
        given: dict[str, Value] = {k: (Piece(w.text, w.place, w.unresolved),) for k, w in set_here}
        given.update(self._before(set_first))
        tokens, more = self._lexed(source), tuple(arguments)
        return Outcome(None, None, tokens, file, command.outer, job, more, given, is_program=True)

    def _before(self, set_first: Sequence[Token]) -> dict[str, Value]:
        """`NAME=value` before a program."""
        parts = filter(None, map(assignment, set_first))
        return {name: self.expander.joined(value) for name, _, value in parts}

    def _add(self, command: Command, set_first: Sequence[Token], place: Place) -> None:
        """Keep a launch, if it is one."""
        variables = self.variables
        environment = {
            name: word_of(held, place)
            for name in sorted(variables.exported)
            if (held := variables.held.get(name)) is not None and not isinstance(held, dict)
        }
        before = self._before(set_first)
        environment.update({name: word_of(value, place) for name, value in before.items()})
        problems = (*self.problems, *self.doubts)
        variables.charge(len(environment) + len(problems) + len(variables.unread), place)
        around = Surroundings(environment, self.job, self.outer, problems)
        rest = tuple(
            replace(w, unresolved=()) if posixpath.normpath(w.text) in self.written else w
            for w in command.rest
        )
        launch = launch_of(replace(command, rest=rest), around)
        if launch is None:
            return
        started = pairwise((launch.program, *launch.starter_arguments))
        others = (w for pair in started for w in pair[1:] if not any(map(_meets, pair)))
        words = (launch.program, *launch.arguments, *others)
        counts = (word for word in (launch.nodes, launch.gpus_per_node) if word)
        names = dict.fromkeys(name for word in (*words, *counts) for name in word.unresolved)
        why = [p for name, p in variables.unread.items() if name in names or name[0] == "+"]
        files = {posixpath.basename(path): text_of(v) for path, v in self.written.items() if v}
        self.launches.append(
            replace(launch, files=files, problems=tuple(dict.fromkeys((*why, *launch.problems))))
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
                for name, equals, value in (text.partition("=") for text in names):
                    if equals and name.isidentifier():  # export $(cat .env)
                        self.variables.assign(name, (Piece(value, token.place),), token.place)
                names = [name.partition("=")[0] for name in names]
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

    def arithmetic(self, token: Token) -> Verdict:
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

    def _forget(self, names: Sequence[str], one: Simple) -> Outcome:
        for plain in (name.partition("=")[0] for name in names):
            if plain.isidentifier():
                says = f"{plain} is set by {one.texts[0]}, known only in a run"
                says += f": give --set {plain}=VALUE"
                self.variables.forget(plain, Problem("shell_unread", "unread", says, one.place))
        return Outcome(None)


_BUILTINS = {
    "eval": Commands._eval,
    **dict.fromkeys(PRINTING, Commands._print),
    "cd": Commands._cd,
    **dict.fromkeys(("source", "."), Commands._include),
    **dict.fromkeys(("unset", "let"), Commands._unset),
    "set": Commands._set,
    "shift": Commands._shift,
    **dict.fromkeys(("read", "mapfile", "readarray"), Commands._read),
    "getopts": Commands._getopts,
    "printf": Commands._printf,
}


def _meets(word: Word) -> bool:
    """Does it only say where ranks meet?"""
    return bool(re.match(r"--(?:master|main_process_|machine_rank|node.rank|rdzv)", word.text))


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
