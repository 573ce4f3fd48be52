"""A script from its first command to its last, without running any of them.

What stands in a branch or a loop of which only a run would tell whether it is taken is read as if
it were, and undone behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainplan.planner.readers.reading import Problem, Word
from trainplan.planner.readers.shell.commands import Commands, Outcome
from trainplan.planner.readers.shell.conditions import Verdict, both, either, matches, negated
from trainplan.planner.readers.shell.lexer import Lexer, ShellError, Source, Token, where
from trainplan.planner.readers.shell.variables import Array, Value, names_of

_DEPTH_LIMIT = 200
_CALLS_LIMIT = 2000
_SPELLED = {"call": "function", "subshell": "(", "group": "{", "function": "{", "gated": "&&"}
_BRANCH_ENDS = (";;", ";&", ";;&")


@dataclass(slots=True)
class Frame:
    """Something opened and not yet closed."""

    kind: str
    """`if`, `loop`, `case`, `group`, `subshell`, `function`, `call`; `gated`: one command behind
    `&&` or `||`."""
    line: int | None
    outer: Verdict
    """Is the whole taken?"""
    saved: tuple[Verdict, str, bool]
    """Status, connection and negation of the list that it stands in."""
    mode: Verdict = True
    """Is what is read now taken?"""
    taken: Verdict = False
    """Was a branch up to now taken?"""
    condition: bool = False
    """A condition is read, or the pattern of a case is due."""
    journal: bool = False
    left: bool = False
    """The branch ends the script."""
    outcomes: list[dict[str, Value | Array | None]] = field(default_factory=list)
    doubt: Problem | None = None
    word: str = ""
    """`until`; the variable of a loop; the name of a function."""
    subject: Value = ()
    start: int = 0
    back: tuple[Sequence[Token], int, int] = ((), 0, 0)
    """Of a call, where to go on."""
    arguments: list[Value] | None = None
    outside: tuple[Word, ...] = ()


class Walk:
    """Goes through the tokens once, and through functions where they are called."""

    def __init__(self, commands: Commands) -> None:
        self.commands, self.variables = commands, commands.variables
        self.tokens: Sequence[Token] = ()
        self.at = self.end = 0
        self.frames = [Frame("call", None, outer=True, saved=(True, "", False))]
        self.bodies: dict[str, tuple[Sequence[Token], int, int]] = {}
        self.called: set[str] = set()
        self.calls = 0
        self.status: Verdict = True
        """Of the list of commands so far."""
        self.connection = ""
        """`&&` or `||` before the next command."""
        self.negate = False
        self.stops: int | None = None
        """Line at which the script ends before its text does."""

    def run(self, tokens: Sequence[Token]) -> None:
        """Read a script, then the functions that it never calls."""
        self.tokens, self.end = tokens, len(tokens)
        self._go()
        for name, body in self.bodies.items():
            if name not in self.called:
                line = body[0][body[1] - 1].line
                says = f"stands in the function {name}, which is not seen to be called"
                self._gate(
                    line, Problem("branch_unread", "unread", says, self.commands.place(line))
                )
                self._call(body, line, self.variables.positional)
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
        if token.text == "(":
            self._open("subshell", token.line)
            self.variables.journals.append({})
        elif token.text == ")":
            self._closing(token, "subshell")
            self.variables.undo()
            self._close()
        elif token.text in ("&&", "||"):
            self.connection = token.text
            self._skip_lines()
        elif token.text in ("|", "|&"):
            self._skip_lines()
        elif token.text in _BRANCH_ENDS:
            self._end_branch(self._closing(token, "case"))
            self.frames[-1].condition = True
            self.connection, self.negate = "", False
        else:
            self.connection, self.negate = "", False

    def _skip_lines(self) -> None:
        while self.at < self.end and self.tokens[self.at].text == "\n":
            self.at += 1

    # Commands

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
            place = where(self.variables.file, token.line)
            raise ShellError(f"{place}: a `(` stands where none may: quote it")
        if self._gated(token.line) is False:
            self._finish(True)
            return
        outcome = self.commands.carry_out(words, self.bodies)
        if outcome.leaves:
            self._leave(outcome.leaves, token.line)
        if outcome.calls:
            self.called.add(outcome.calls)
            self._call(self.bodies[outcome.calls], token.line, list(outcome.arguments))
        elif outcome.runs:
            self._nested(outcome.runs, outcome, token.line)
        else:
            certain = (
                outcome.status is None and outcome.is_program and not self.frames[-1].condition
            )
            self._finish(True if certain else outcome.status)

    def _texts(self, count: int) -> list[str]:
        return [token.text for token in self.tokens[self.at : min(self.at + count, self.end)]]

    def _gated(self, line: int | None) -> Verdict:
        """Is the command that begins taken?"""
        reached = self.status if self.connection == "&&" else negated(self.status)
        reached = reached if self.connection else True
        mode = both(self.frames[-1].mode, reached)
        if reached is None and mode is None:
            self._gate(line, self._doubt("list of commands", line))
        return mode

    def _gate(self, line: int | None, doubt: Problem) -> None:
        """What begins may not be taken."""
        mode = both(self.frames[-1].mode, None)
        saved = self.status, self.connection, self.negate
        self._push(
            Frame("gated", line, outer=mode, saved=saved, mode=mode, doubt=doubt, journal=True)
        )
        self.variables.journals.append({})
        self.status, self.connection, self.negate = True, "", False

    def _finish(self, status: Verdict) -> None:
        """A command has ended."""
        status = negated(status) if self.negate else status
        self.negate = False
        if self.frames[-1].kind == "gated":
            frame = self.frames.pop()
            self._end_branch(frame)
            self._merge(frame)
            self.status, self.connection, self.negate = frame.saved
            self.negate = False
        if self.connection:
            status = (both if self.connection == "&&" else either)(self.status, status)
        self.status = status

    def _push(self, frame: Frame) -> None:
        self.frames.append(frame)
        if len(self.frames) > _DEPTH_LIMIT:
            place = where(self.variables.file, frame.line)
            raise ShellError(
                f"{place}: commands nest deeper than {_DEPTH_LIMIT}: write the launch alone"
            )
        self._doubts()

    def _open(self, kind: str, line: int | None) -> Frame:
        """A compound command begins."""
        mode = self._gated(line)
        saved = self.status, self.connection, self.negate
        frame = Frame(kind, line, outer=mode, saved=saved, mode=mode)
        self._push(frame)
        self.status, self.connection, self.negate = True, "", False
        return frame

    def _close(self, status: Verdict = True) -> None:
        """The innermost compound command ends."""
        frame = self.frames.pop()
        self._doubts()
        self.status, self.connection, self.negate = frame.saved
        self._finish(status)

    def _closing(self, token: Token, *kinds: str) -> Frame:
        if self.frames[-1].kind not in kinds:
            place = where(self.variables.file, token.line)
            raise ShellError(
                f"{place}: `{token.text}` closes nothing that is open: check what is above"
            )
        return self.frames[-1]

    def _doubts(self) -> None:
        self.commands.doubts = tuple(frame.doubt for frame in self.frames if frame.doubt)

    def _doubt(self, what: str, line: int | None) -> Problem:
        asks = dict.fromkeys(self.commands.asks)
        says = f"stands in this {what}, and only a run would tell whether it is taken"
        says += f": give --set {' --set '.join(f'{name}=VALUE' for name in asks)}" if asks else ""
        return Problem("branch_unread", "unread", says, self.commands.place(line))

    # Branches

    def _branch(self, frame: Frame, verdict: Verdict, line: int | None) -> None:
        """A branch begins."""
        reached = both(negated(frame.taken), verdict)
        frame.taken = either(frame.taken, verdict)
        frame.mode = both(frame.outer, reached)
        frame.condition = False
        if reached is None and frame.mode is None:
            frame.journal = True
            frame.doubt = self._doubt(_SPELLED.get(frame.kind, frame.kind), line)
            self.variables.journals.append({})
            self._doubts()
        self.connection, self.negate = "", False

    def _end_branch(self, frame: Frame) -> None:
        if frame.journal:
            outcome = self.variables.undo()
            frame.outcomes += () if frame.left else (outcome,)
        frame.journal = frame.left = False
        frame.doubt = None
        self._doubts()

    def _merge(self, frame: Frame) -> None:
        if frame.outcomes:
            outcomes = [*frame.outcomes, *(({},) if frame.taken is not True else ())]
            self.variables.merge(outcomes, frame.line, _SPELLED.get(frame.kind, frame.kind))

    def _if(self, token: Token) -> None:
        self._open("if", token.line).condition = True
        self.commands.asks = []

    def _then(self, token: Token) -> None:
        self._branch(self._closing(token, "if"), self.status, token.line)

    def _elif(self, token: Token) -> None:
        frame = self._closing(token, "if")
        self._end_branch(frame)
        frame.mode, frame.condition = both(frame.outer, negated(frame.taken)), True
        self.connection, self.negate = "", False

    def _else(self, token: Token) -> None:
        frame = self._closing(token, "if")
        self._end_branch(frame)
        self._branch(frame, True, token.line)

    def _fi(self, token: Token) -> None:
        frame = self._closing(token, *_CLOSES[token.text])
        self._end_branch(frame)
        self._merge(frame)
        self._close()

    def _while(self, token: Token) -> None:
        frame = self._open("loop", token.line)
        frame.condition, frame.word = True, token.text
        self.commands.asks = []

    def _for(self, token: Token) -> None:
        """`for NAME in ...`, `for ((...))`."""
        frame = self._open("loop", token.line)
        frame.condition, frame.word = True, "for"
        start = self.at
        while self.at < self.end and self.tokens[self.at].text not in ("do", "\n", ";"):
            self.at += 1
        header = self.tokens[start : self.at]
        frame.word = header[0].text if header else ""
        fields = [
            field for token in header[2:] for field in self.commands.expander.fields(token.parts)
        ]
        own = len(header) == 1 or (
            bool(fields) and all(names_of(field) == ("@",) for field in fields)
        )
        self.status = False if own and header[0].kind == "word" else None
        self.commands.asks = []

    def _do(self, token: Token) -> None:
        frame = self._closing(token, "loop")
        ends = negated(self.status) if frame.word == "until" else self.status
        self._branch(frame, False if ends is False else None, frame.line)
        if frame.word not in ("while", "until") and frame.journal and frame.word.isidentifier():
            says = f"{frame.word} is set by a loop: give --set {frame.word}=VALUE"
            problem = Problem("shell_unread", "unread", says, self.commands.place(frame.line))
            self.variables.forget(frame.word, problem)

    def _case(self, token: Token) -> None:
        frame = self._open("case", token.line)
        if self.at < self.end:
            frame.subject = self.commands.expander.joined(self.tokens[self.at].parts, asked=True)
        self.commands.asks = list(names_of(frame.subject))
        self.at += 1
        self._skip_lines()
        if self._texts(1) != ["in"]:
            place = where(self.variables.file, token.line)
            raise ShellError(f"{place}: this `case` has no `in`: write it whole")
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
                pattern = self.commands.expander.joined(token.parts, asked=True)
                verdict = either(verdict, matches(frame.subject, pattern))
            elif token.text in ("\n", ";") and verdict is False:
                return
            if self.at >= self.end:
                place = where(self.variables.file, frame.line)
                raise ShellError(f"{place}: this `case` never ends: add an `esac`")
            token = self.tokens[self.at]
            self.at += 1
        self._branch(frame, verdict, token.line)

    def _brace(self, token: Token) -> None:
        self._open("group", token.line)

    def _unbrace(self, token: Token) -> None:
        frame = self._closing(token, "group", "function")
        if frame.kind == "function" and frame.outer is not False:
            self.bodies[frame.word] = (self.tokens, frame.start, self.at - 1)
            self.called.discard(frame.word)
        self._close()

    # Functions and texts

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
        frame = self._open("function", token.line)
        if self._texts(1) != ["{"]:
            frame.kind = "group"
            self._close()
            return
        self.at += 1
        frame.mode, frame.word, frame.start = False, token.text, self.at

    def _call(
        self,
        body: tuple[Sequence[Token], int, int],
        line: int | None,
        arguments: list[Value] | None,
    ) -> None:
        self.calls += 1
        frame = self._open("call", line)
        frame.back = (self.tokens, self.at, self.end)
        frame.arguments, frame.outside = self.variables.positional, self.commands.outer
        if self.calls > _CALLS_LIMIT:
            place = where(self.variables.file, line)
            raise ShellError(
                f"{place}: more than {_CALLS_LIMIT} calls: write the launch without them"
            )
        self.variables.positional = arguments
        self.tokens, self.at, self.end = body

    def _nested(self, source: Source, outcome: Outcome, line: int | None) -> None:
        """`eval`, `bash -c`: text that is a script of its own."""
        self.variables.charge(len(source.text), line)
        tokens = Lexer(source).tokens()
        positional = list(outcome.arguments) if outcome.outer else self.variables.positional
        self._call((tokens, 0, len(tokens)), line, positional)
        self.commands.outer = (*self.commands.outer, *outcome.outer)

    def _return(self) -> None:
        frame = self.frames[-1]
        if frame.kind != "call":
            place = where(self.variables.file, frame.line)
            raise ShellError(
                f"{place}: this `{_SPELLED.get(frame.kind, frame.kind)}` is never closed"
            )
        self.tokens, self.at, self.end = frame.back
        self.variables.positional, self.commands.outer = frame.arguments, frame.outside
        self._close(None if self.frames[-2].condition else True)

    def _leave(self, how: str, line: int | None) -> None:
        """`exit` and `return`."""
        frames = list(reversed(self.frames))
        inner = next(frame for frame in frames if frame.journal or frame.kind == "call")
        if inner.journal:
            inner.left = True
        elif how == "return" and self.frames[-1] is inner:
            self.at = self.end
        elif how == "exit" and all(frame.kind == "call" for frame in frames):
            self.stops = line
            self.frames[1:] = []
            self.at = self.end
            self._doubts()
        elif how == "exit":
            says = "the script stops here as far as it can be read: set what the condition asks for"
            self.commands.problems.append(
                Problem("script_stops", "unread", says, self.commands.place(line))
            )


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
    "done": Walk._fi,
    "case": Walk._case,
    "esac": Walk._fi,
    "{": Walk._brace,
    "}": Walk._unbrace,
    "function": Walk._named_function,
}
