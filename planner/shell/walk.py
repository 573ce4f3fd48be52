"""A script from its first command to its last, without running any of them.

What stands in a branch or a loop of which only a run would tell whether it is taken is read as if
it were, and undone behind it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainplan.planner.shell.commands import Commands, Outcome
from trainplan.planner.shell.conditions import Verdict, both, either, matches, negated
from trainplan.planner.shell.frames import SPELLED, Frame, Frames
from trainplan.planner.shell.launch import Place, Problem
from trainplan.planner.shell.lexer import Token
from trainplan.planner.shell.variables import Piece, Value, clipped, names_of, text_of
from trainplan.planner.shell.words import refuse

_CALLS_LIMIT = 2000
_LOOP_LIMITS = (1000, 300_000, 200)
"""Turns of a loop, work in it and calls: beyond them it is read as one that may never end."""
_RECURSION_LIMIT = 4
"""Calls of a function in itself, where only a run would tell whether it calls itself."""
_TURN = 16
"""Work of a token of a loop that is read again."""
_BRANCH_ENDS = (";;", ";&", ";;&")


class Walk(Frames):
    """Goes through the tokens once, and through functions where they are called."""

    def __init__(self, commands: Commands) -> None:
        super().__init__(commands)
        self.tokens: Sequence[Token] = ()
        self.at = self.end = 0
        self.bodies: dict[str, tuple[Sequence[Token], int, int]] = {}
        self.called: set[str] = set()
        self.calls = 0
        self.stops: Place | None = None
        """Line at which the script ends before its text does."""

    def run(self, tokens: Sequence[Token]) -> None:
        """Read a script, then the functions that it never calls."""
        self.tokens, self.end = tokens, len(tokens)
        self._go()
        for name, body in list(self.bodies.items()):
            if name not in self.called:
                place = body[0][body[1] - 1].place
                says = f"is inside the function {name}, which is not seen to be called"
                self.gate(place, Problem("branch_unread", "unread", says, place))
                self._call(body, place, None)
                self._go()

    def _go(self) -> None:
        while self.at < self.end or len(self.frames) > 1:
            if self.at >= self.end:
                self._return()
            elif self.frames[-1].kind == "case" and self.frames[-1].condition:
                self._pattern(self.tokens[self.at])
            else:
                self._step(self.tokens[self.at])

    def _step(self, token: Token) -> None:
        if token.kind == "operator":
            self.at += 1
            self._operator(token)
        elif token.text == "!":
            self.at += 1
            self.negate = not self.negate
        elif token.text in ("time", "coproc"):
            self.at += 1
        elif token.text in _KEYWORDS:
            self.at += 1
            _KEYWORDS[token.text](self, token)
        else:
            self._simple(token)

    def _operator(self, token: Token) -> None:
        if token.text[:1] != "|" or token.text == "||":
            self.commands.printed = None
        if token.text == "(":
            self.open("subshell", token.place)
            self.variables.journals.append({})
        elif token.text == ")":
            self.closing(token, "subshell")
            self.variables.undo()
            self.close()
        elif token.text in ("&&", "||"):
            self.connection = token.text
            self._skip_lines()
        elif token.text in ("|", "|&"):
            self._skip_lines()
        elif token.text in _BRANCH_ENDS:
            self.end_branch(self.closing(token, "case"))
            self.frames[-1].condition = True
            self.connection, self.negate = "", False
        else:
            self.connection, self.negate = "", False
            if not self.frames[-1].condition:
                self.commands.begin_condition()

    def _skip_lines(self) -> None:
        while self.at < self.end and self.tokens[self.at].text == "\n":
            self.at += 1

    def _simple(self, token: Token) -> None:
        start = self.at
        last = "]]" if token.text == "[[" else ""
        while self.at < self.end:
            found = self.tokens[self.at]
            if last and found.text == last:
                self.at += 1
                break
            if found.kind == "operator" and not last:
                break
            self.at += 1
        words = self.tokens[start : self.at]
        if len(words) == 1 and self._texts(2) == ["(", ")"]:
            self.at += 2
            self._function(words[0])
            return
        if self._texts(1) == ["("]:
            refuse(token.place, "a `(` is where none may be: quote it")
        if self.gated(token.place) is False:
            self.finish(status=True)
            return
        outcome = self.commands.carry_out(words, self.bodies)
        if outcome.leaves:
            self._leave(outcome.leaves, token.place)
        inside = sum(one.word == outcome.calls for one in self.frames if one.kind == "call")
        if outcome.calls and (self.frames[-1].mode or inside < _RECURSION_LIMIT):
            self.called.add(outcome.calls)
            self._call(self.bodies[outcome.calls], token.place, list(outcome.arguments or ()))
            self.frames[-1].word = outcome.calls
        elif outcome.runs:
            self._nested(outcome.runs, outcome, token.place)
        else:
            certain = (
                outcome.status is None and outcome.is_program and not self.frames[-1].condition
            )
            self.finish(status=True if certain else outcome.status)

    def _texts(self, count: int) -> list[str]:
        return [token.text for token in self.tokens[self.at : min(self.at + count, self.end)]]

    def _if(self, token: Token) -> None:
        self.open("if", token.place).condition = True
        self.commands.begin_condition()

    def _then(self, token: Token) -> None:
        self.branch(self.closing(token, "if"), token.place, verdict=self.status)

    def _elif(self, token: Token) -> None:
        frame = self.closing(token, "if")
        self.end_branch(frame)
        frame.mode, frame.condition = both(frame.outer, negated(frame.taken)), True
        self.connection, self.negate = "", False

    def _else(self, token: Token) -> None:
        frame = self.closing(token, "if")
        self.end_branch(frame)
        self.branch(frame, token.place, verdict=True)

    def _fi(self, token: Token) -> None:
        frame = self.closing(token, *_CLOSES[token.text])
        self.end_branch(frame)
        self.merge(frame)
        self.close()

    def _while(self, token: Token) -> None:
        frame = self.open("loop", token.place)
        frame.condition, frame.word, frame.start = True, token.text, self.at
        self.commands.begin_condition()

    def _for(self, token: Token) -> None:
        """`for NAME in ...`, `for ((...))`."""
        frame = self.open("loop", token.place)
        frame.condition, start = True, self.at
        while self.at < self.end and self.tokens[self.at].text not in ("do", "\n", ";"):
            self.at += 1
        header = self.tokens[start : self.at] if frame.outer is not False else ()
        self.commands.begin_condition()
        frame.turns = iter((None,))
        if header and header[0].kind == "arithmetic":
            frame.turns = self._counted(header[0])
        elif header:
            frame.word, values = header[0].text, self.variables.positional
            if header[1:]:
                fields = self.commands.expander.fields
                values = [field for one in header[2:] for field in fields(one.parts)]
            self.variables.charge_values(values or (), frame.place)
            one = self.variables.settings.get(frame.word)
            values = [one] if one and len(values or ()) > 1 else values
            globs = any(names_of(v) or re.search(r"[*?]", text_of(v)) for v in values or ())
            if values is not None and not globs and token.text == "for":
                frame.turns = self._each(frame, values)

    def _each(self, frame: Frame, values: Sequence[Value]) -> Iterator[Verdict]:
        """Turns of `for NAME in VALUES`."""
        frame.says = f"takes {clipped(', '.join(map(text_of, values)))} in a loop"
        for value in values:
            self.variables.assign(frame.word, value, frame.place)
            yield True

    def _counted(self, header: Token) -> Iterator[Verdict]:
        """Turns of `for ((START; TEST; STEP))`."""
        start, test, step = (*header.text.split(";"), "", "")[:3]
        step = re.sub(r"^\s*(\+\+|--)\s*(\w+)", r"\2\1", step)
        self.commands.arithmetic(replace(header, text=start))
        while (status := self.commands.arithmetic(replace(header, text=test or "1"))) is True:
            yield True
            self.commands.arithmetic(replace(header, text=step))
        yield status

    def _do(self, token: Token) -> None:
        frame, commands = self.closing(token, "loop"), self.commands
        verdict = negated(self.status) if frame.word == "until" else self.status
        if frame.outer is False:
            verdict = False
        elif frame.turns is not None:
            verdict, frame.start = next(frame.turns, False), self.at - 1
        again = any(one.kind == "loop" and one.journal for one in self.frames)
        begun = frame.begun if frame.turn else (0, self.variables.work, self.calls)
        spent = (frame.turn, self.variables.work - begun[1], self.calls - begun[2])
        ends = all(one < most for one, most in zip(spent, _LOOP_LIMITS, strict=True))
        takes = verdict is True and ends and not again
        if takes and not frame.turn:
            frame.begun = (len(commands.launches), *begun[1:])
            frame.arguments = self.variables.positional
            self.variables.journals.append({})
        elif frame.turn and verdict and (not takes or len(commands.launches) > begun[0]):
            self.variables.undo()
            del commands.launches[begun[0] :]
            self.variables.positional, self.calls = frame.arguments, begun[2]
            takes, frame.turn = False, 0
        elif frame.turn and not takes:
            self.variables.commit()
            frame.turn = 0
        if takes:
            frame.turn += 1
            frame.mode, frame.condition = frame.outer, False
            self.connection, self.negate = "", False
            return
        commands.asks += [frame.word] if frame.turns and frame.word.isidentifier() else []
        self.branch(frame, frame.place, verdict=False if verdict is False else None)
        if frame.turns and frame.journal and frame.word.isidentifier():
            says = f"{frame.word} {frame.says}: give --set {frame.word}=VALUE"
            problem = Problem("shell_unread", "unread", says, frame.place)
            self.variables.forget(frame.word, problem)

    def _done(self, token: Token) -> None:
        """The end of a turn."""
        frame = self.frames[-1]
        if frame.kind == "loop" and frame.turn and frame.outer is not False:
            self.variables.charge((self.at - frame.start) * _TURN, frame.place)
            self.at, frame.mode, frame.condition = frame.start, frame.outer, True
            self.status, self.connection, self.negate = True, "", False
            return
        if frame.kind == "loop" and frame.turn:
            self.variables.commit()
        self._fi(token)

    def _case(self, token: Token) -> None:
        frame = self.open("case", token.place)
        self.commands.begin_condition()
        if self.at < self.end:
            frame.subject = self.commands.expander.joined(self.tokens[self.at].parts, tested=True)
        self.commands.asks = list(names_of(frame.subject))
        self.at += 1
        self._skip_lines()
        if self._texts(1) != ["in"]:
            refuse(token.place, "this `case` has no `in`: write it whole")
        self.at += 1
        frame.condition = True

    def _pattern(self, token: Token) -> None:
        """Patterns of a case up to their `)`."""
        frame = self.frames[-1]
        self.at += 1
        if token.text == "esac":
            frame.condition = False
            self._fi(token)
            return
        verdict: Verdict = False
        while token.text != ")":
            if token.kind == "word":
                pattern = self.commands.expander.pattern(token.parts)
                verdict = either(verdict, matches(frame.subject, pattern))
            elif token.text in ("\n", ";") and verdict is False:
                return
            if self.at >= self.end:
                refuse(frame.place, "this `case` never ends: add an `esac`")
            token = self.tokens[self.at]
            self.at += 1
        self.branch(frame, token.place, verdict=verdict)

    def _brace(self, token: Token) -> None:
        self.open("group", token.place)

    def _unbrace(self, token: Token) -> None:
        frame = self.closing(token, "group", "function")
        if frame.kind == "function" and frame.outer is not False:
            self.bodies[frame.word] = (self.tokens, frame.start, self.at - 1)
            self.called.discard(frame.word)
        self.close()

    def _named_function(self, token: Token) -> None:
        """`function NAME`."""
        if self.at < self.end:
            token = self.tokens[self.at]
            self.at += (
                3 if [t.text for t in self.tokens[self.at + 1 : self.at + 3]] == ["(", ")"] else 1
            )
        self._function(token)

    def _function(self, token: Token) -> None:
        self._skip_lines()
        frame = self.open("function", token.place)
        if self._texts(1) != ["{"]:
            frame.kind = "group"
            self.close()
            return
        self.at += 1
        frame.mode, frame.word, frame.start = False, token.text, self.at

    def _call(
        self,
        body: tuple[Sequence[Token], int, int],
        place: Place,
        arguments: list[Value] | None,
    ) -> None:
        self.calls += 1
        frame = self.open("call", place)
        frame.back = (self.tokens, self.at, self.end)
        commands, variables = self.commands, self.variables
        file = variables.held.get("BASH_SOURCE")
        frame.outside = commands.outer, commands.job, variables.exported, file
        frame.arguments = variables.positional
        if self.calls > _CALLS_LIMIT:
            refuse(place, f"more than {_CALLS_LIMIT} calls: write the launch without them")
        self.variables.positional = arguments
        self.tokens, self.at, self.end = body

    def _nested(self, tokens: Sequence[Token], outcome: Outcome, place: Place) -> None:
        """`eval`, `bash -c`, `source`: a script of its own."""
        variables, commands, more = self.variables, self.commands, outcome.arguments
        arguments = variables.positional if more is None else list(more)
        self._call((tokens, 0, len(tokens)), place, arguments)
        if outcome.is_program:
            self.frames[-1].is_program = True
            variables.enter(outcome.given, place)
        if outcome.file:
            for name in ("BASH_SOURCE", "0") if outcome.is_program else ("BASH_SOURCE",):
                variables.put(name, (Piece(outcome.file, place),))
        if outcome.job:
            commands.job, variables.beneath = outcome.job, outcome.job.variables()
            for name, value in variables.beneath.items():
                variables.put(name, value)
        commands.outer = (*commands.outer, *outcome.outer)

    def _return(self) -> None:
        frame = self.frames[-1]
        if frame.kind != "call":
            refuse(frame.place, f"this `{SPELLED.get(frame.kind, frame.kind)}` is never closed")
        self.tokens, self.at, self.end = frame.back
        self.variables.positional, variables = frame.arguments, self.variables
        if frame.is_program:
            variables.undo()
        if frame.outside:
            self.commands.outer, self.commands.job, variables.exported, file = frame.outside
            variables.put("BASH_SOURCE", file)
        self.close(status=None if self.frames[-2].condition else True)

    def _leave(self, how: str, place: Place) -> None:
        """`exit`, `return`, `break` and `continue`."""
        frames = list(reversed(self.frames))
        kind = "loop" if how in ("break", "continue") else "call"
        inner = next(
            one
            for one in frames
            if one.journal
            or one is frames[-1]
            or (one.kind == kind and (how != "exit" or one.is_program))
        )
        if inner.journal:
            inner.left = kind == "call"
        elif inner is not frames[-1]:
            self.skip(inner, whole=how != "continue")
        elif kind == "call" and len(frames) == 1 and not self.connection:
            self.stops, self.at = place, self.end
        elif kind == "call" and not (
            any(one.guards for one in frames)
            or (self.connection and self.commands.expander.finds_unset)
        ):
            says = "the script ends here unless what it tests is set; read on as if it were"
            self.commands.problems.append(Problem("script_stops", "unread", says, place))


_CLOSES = {"fi": ("if",), "done": ("loop",), "esac": ("case",)}
_KEYWORDS = {
    "if": Walk._if,
    "then": Walk._then,
    "elif": Walk._elif,
    "else": Walk._else,
    "fi": Walk._fi,
    "while": Walk._while,
    "until": Walk._while,
    "for": Walk._for,
    "select": Walk._for,
    "do": Walk._do,
    "done": Walk._done,
    "case": Walk._case,
    "esac": Walk._fi,
    "{": Walk._brace,
    "}": Walk._unbrace,
    "function": Walk._named_function,
}
