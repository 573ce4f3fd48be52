"""What is open in a script, whether it is taken, and what a list of commands has come to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainplan.planner.shell.commands import Commands
from trainplan.planner.shell.conditions import Verdict, both, either, negated
from trainplan.planner.shell.launch import COMMAND_LINE, Place, Problem, Word
from trainplan.planner.shell.lexer import Token
from trainplan.planner.shell.slurm import Allocation
from trainplan.planner.shell.variables import Array, Value
from trainplan.planner.shell.words import refuse

_DEPTH_LIMIT = 200
SPELLED = {"call": "function", "subshell": "(", "group": "{", "function": "{", "gated": "&&"}


@dataclass(slots=True)
class Frame:
    """Something opened and not yet closed."""

    kind: str
    """`if`, `loop`, `case`, `group`, `subshell`, `function`, `call`; `gated`: one command behind
    `&&` or `||`."""
    place: Place
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
    guards: bool = False
    """It is taken because a variable of the environment is not set."""
    left: bool = False
    """The branch ends the script."""
    outcomes: list[dict[str, Value | Array | None]] = field(default_factory=list)
    doubt: Problem | None = None
    word: str = ""
    """`until`; the variable of a loop; the name of a function."""
    says: str = "is set by a loop"
    """Of that variable."""
    subject: Value = ()
    start: int = 0
    back: tuple[Sequence[Token], int, int] = ((), 0, 0)
    """Of a call, where to go on."""
    arguments: list[Value] | None = None
    """Of the call that it stands in, or as they were when a loop began."""
    outside: tuple[tuple[Word, ...], Allocation, set[str], Value | Array | None] | None = None
    """Around a call: starters, the job, what is exported, and the file."""
    is_program: bool = False
    turns: Iterator[Verdict] | None = None
    """Of `for`: is there another turn?"""
    turn: int = 0
    """Of a loop all turns of which are known, up to now."""
    begun: tuple[int, int, int] = (0, 0, 0)
    """Launches, work and calls before a loop."""


class Frames:
    """Frames around the command that is read, the innermost last."""

    def __init__(self, commands: Commands) -> None:
        self.commands, self.variables = commands, commands.variables
        self.frames = [Frame("call", COMMAND_LINE, outer=True, saved=(True, "", False))]
        self.status: Verdict = True
        """Of the list of commands so far."""
        self.connection = ""
        """`&&` or `||` before the next command."""
        self.negate = False

    def gated(self, place: Place) -> Verdict:
        """Is the command that begins taken?"""
        reached = self.status if self.connection == "&&" else negated(self.status)
        reached = reached if self.connection else True
        mode = both(self.frames[-1].mode, reached)
        if reached is None and mode is None:
            self.gate(place, self.doubt("list of commands", place))
        return mode

    def gate(self, place: Place, doubt: Problem) -> None:
        """What begins may not be taken."""
        mode = both(self.frames[-1].mode, None)
        saved = self.status, self.connection, self.negate
        self.push(
            Frame("gated", place, outer=mode, saved=saved, mode=mode, doubt=doubt, journal=True)
        )
        self.variables.journals.append({})
        self.status, self.connection = True, ""

    def finish(self, *, status: Verdict) -> None:
        """A command has ended."""
        status = negated(status) if self.negate else status
        self.negate = False
        if self.frames[-1].kind == "gated":
            frame = self.frames.pop()
            self.end_branch(frame)
            self.merge(frame)
            self.status, self.connection, _ = frame.saved
        if self.connection:
            status = (both if self.connection == "&&" else either)(self.status, status)
        self.status = status

    def push(self, frame: Frame) -> None:
        """Something opens."""
        self.frames.append(frame)
        if len(self.frames) > _DEPTH_LIMIT:
            refuse(frame.place, f"commands nest deeper than {_DEPTH_LIMIT}: write the launch alone")
        self.doubts()

    def open(self, kind: str, place: Place) -> Frame:
        """A compound command begins."""
        mode = self.gated(place)
        saved = self.status, self.connection, self.negate
        guards = bool(self.connection) and self.commands.expander.finds_unset
        frame = Frame(kind, place, outer=mode, saved=saved, mode=mode, guards=guards)
        self.push(frame)
        self.status, self.connection, self.negate = True, "", False
        return frame

    def close(self, *, status: Verdict = True) -> None:
        """The innermost compound command ends."""
        frame = self.frames.pop()
        self.doubts()
        self.status, self.connection, self.negate = frame.saved
        self.finish(status=status)

    def closing(self, token: Token, *kinds: str) -> Frame:
        """The innermost frame, which a token ends or goes on with."""
        if self.frames[-1].kind not in kinds:
            refuse(token.place, f"`{token.text}` closes nothing that is open: check what is above")
        return self.frames[-1]

    def doubts(self) -> None:
        """Tell what it depends on whether the next command runs."""
        self.commands.depth = len(self.frames)
        self.commands.doubts = tuple(frame.doubt for frame in self.frames if frame.doubt)
        call = max(at for at, frame in enumerate(self.frames) if frame.kind == "call")
        self.commands.certain = not any(frame.doubt for frame in self.frames[call:])

    def doubt(self, what: str, place: Place) -> Problem:
        """Why a launch in it may not run."""
        asks = [n for n in dict.fromkeys(self.commands.asks) if n.isidentifier() or n.isdecimal()]
        says = f"is inside this {what}, and whether it is taken is known to a run alone"
        says += f": give --set {' --set '.join(f'{name}=VALUE' for name in asks)}" if asks else ""
        return Problem("branch_unread", "unread", says, place)

    def branch(self, frame: Frame, place: Place, *, verdict: Verdict) -> None:
        """A branch begins."""
        reached = both(negated(frame.taken), verdict)
        frame.taken = either(frame.taken, verdict)
        frame.mode = both(frame.outer, reached)
        frame.condition = False
        frame.guards |= self.commands.expander.finds_unset
        if reached is None and frame.mode is None:
            frame.journal = True
            frame.doubt = self.doubt(SPELLED.get(frame.kind, frame.kind), place)
            self.variables.journals.append({})
            self.doubts()
        self.connection, self.negate = "", False

    def skip(self, frame: Frame, *, whole: bool = True) -> None:
        """Nothing more of what is open is taken; of a loop, of this turn."""
        at = next(at for at, one in enumerate(self.frames) if one is frame)
        for one in self.frames[at:]:
            one.mode = False
            one.outer = one.outer if one is frame and not whole else False

    def end_branch(self, frame: Frame) -> None:
        """A branch ends: what it did is undone if it may not be taken."""
        if frame.journal:
            outcome = self.variables.undo()
            frame.outcomes += () if frame.left else (outcome,)
        frame.journal = frame.left = False
        frame.doubt = None
        self.doubts()

    def merge(self, frame: Frame) -> None:
        """All branches have ended."""
        if frame.outcomes:
            outcomes = [*frame.outcomes, *(({},) if frame.taken is not True else ())]
            self.variables.merge(outcomes, frame.place, SPELLED.get(frame.kind, frame.kind))
