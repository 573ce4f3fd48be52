"""A script from its first command to its last, without running any of them.

What stands in a branch or a loop of which only a run would tell whether it is taken is read as if
it were, and undone behind it.
"""

from collections.abc import Sequence

from trainplan.planner.shell.commands import Commands, Outcome
from trainplan.planner.shell.conditions import Verdict, both, either, matches, negated
from trainplan.planner.shell.frames import SPELLED, Frames
from trainplan.planner.shell.launch import Place, Problem
from trainplan.planner.shell.lexer import Lexer, Token
from trainplan.planner.shell.variables import Value, names_of
from trainplan.planner.shell.words import Source, refuse

_CALLS_LIMIT = 2000
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
        for name, body in self.bodies.items():
            if name not in self.called:
                place = body[0][body[1] - 1].place
                says = f"stands in the function {name}, which is not seen to be called"
                self.gate(place, Problem("branch_unread", "unread", says, place))
                self._call(body, place, self.variables.positional)
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
            refuse(token.place, "a `(` stands where none may: quote it")
        if self.gated(token.place) is False:
            self.finish(status=True)
            return
        outcome = self.commands.carry_out(words, self.bodies)
        if outcome.leaves:
            self._leave(outcome.leaves, token.place)
        if outcome.calls:
            self.called.add(outcome.calls)
            self._call(self.bodies[outcome.calls], token.place, list(outcome.arguments))
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
        self.commands.asks = []

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
        frame.condition, frame.word = True, token.text
        self.commands.asks = []

    def _for(self, token: Token) -> None:
        """`for NAME in ...`, `for ((...))`."""
        frame = self.open("loop", token.place)
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
        frame = self.closing(token, "loop")
        ends = negated(self.status) if frame.word == "until" else self.status
        self.branch(frame, frame.place, verdict=False if ends is False else None)
        if frame.word not in ("while", "until") and frame.journal and frame.word.isidentifier():
            says = f"{frame.word} is set by a loop: give --set {frame.word}=VALUE"
            problem = Problem("shell_unread", "unread", says, frame.place)
            self.variables.forget(frame.word, problem)

    def _case(self, token: Token) -> None:
        frame = self.open("case", token.place)
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
        frame.arguments, frame.outside = self.variables.positional, self.commands.outer
        if self.calls > _CALLS_LIMIT:
            refuse(place, f"more than {_CALLS_LIMIT} calls: write the launch without them")
        self.variables.positional = arguments
        self.tokens, self.at, self.end = body

    def _nested(self, source: Source, outcome: Outcome, place: Place) -> None:
        """`eval`, `bash -c`: text that is a script of its own."""
        self.variables.charge(len(source.text), place)
        tokens = Lexer(source).tokens()
        positional = list(outcome.arguments) if outcome.is_program else self.variables.positional
        self._call((tokens, 0, len(tokens)), place, positional)
        self.commands.outer = (*self.commands.outer, *outcome.outer)

    def _return(self) -> None:
        frame = self.frames[-1]
        if frame.kind != "call":
            refuse(frame.place, f"this `{SPELLED.get(frame.kind, frame.kind)}` is never closed")
        self.tokens, self.at, self.end = frame.back
        self.variables.positional, self.commands.outer = frame.arguments, frame.outside
        self.close(status=None if self.frames[-2].condition else True)

    def _leave(self, how: str, place: Place) -> None:
        """`exit` and `return`."""
        frames = list(reversed(self.frames))
        inner = next(frame for frame in frames if frame.journal or frame.kind == "call")
        if inner.journal:
            inner.left = True
        elif how == "return" and self.frames[-1] is inner:
            self.at = self.end
        elif how == "exit" and all(frame.kind == "call" for frame in frames):
            self.stops = place
            self.frames[1:] = []
            self.at = self.end
            self.doubts()
        elif how == "exit":
            says = "the script stops here as far as it can be read: set what the condition asks for"
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
    "done": Walk._fi,
    "case": Walk._case,
    "esac": Walk._fi,
    "{": Walk._brace,
    "}": Walk._unbrace,
    "function": Walk._named_function,
}
