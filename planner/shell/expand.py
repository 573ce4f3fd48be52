"""Words of the shell after expansion, as far as it goes without running anything.

Source: GNU Bash manual 5.2, section 3.5; blanks always split, whatever IFS holds, and no file name
is looked up.
"""

import fnmatch
import glob
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainplan.planner.shell.arithmetic import evaluated
from trainplan.planner.shell.launch import COMMAND_LINE, Place
from trainplan.planner.shell.lexer import Lexer
from trainplan.planner.shell.variables import (
    Piece,
    Value,
    Variables,
    clipped,
    given,
    names_of,
    text_of,
)
from trainplan.planner.shell.words import Part, Source, refuse

_PARAMETER = re.compile(
    r"(?P<length>#(?=.))?(?P<keys>!(?=\w))?(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[(?P<key>[^\]]*)\])?"
    r"(?:(?P<does>:?[-=+?]|##?|%%?|//?|\^\^|,,)(?P<operand>.*))?",
    re.DOTALL,
)
FIRST = re.compile(
    r"((SKYPILOT|PET|DSTACK|VC|SLURM|OMPI_COMM_WORLD|PMIX?|FLUX_TASK|JOB_COMPLETION|GLOBAL|LOCAL"
    r"|NODE|GROUP|MACHINE|WORLD)_?)*(RANK|PROCID|NODEID|NODE_ID|MACHINE_ID|LOCALID|INDEX)"
)
"""Numbers of a node or a rank: what a script compares with one is read as on the first."""
_SLURM = re.compile(r"SLURM_\w+")
_BRACES = re.compile(r"\{(?:(?P<first>-?\d{1,3})\.\.(?P<last>-?\d{1,3})|(?P<of>[^{},]*,[^{}]*))\}")
_BRACES_LIMIT = 3
_BRACED = 64
"""Work of a word of a brace expansion."""
_ANCHORED = ("/#", "/%")
_LONGEST = 1000
"""Of a sequence."""
_ALWAYS_SET = re.compile(
    r"HOSTNAME|HOME|PWD|OLDPWD|USER|UID|PATH|RANDOM|SECONDS|BASH\w*|LINENO|SHELL|[0?$!-]"
)
_DEPTH_LIMIT = 40
_BLANKS = re.compile(r"[ \t\n]+")
_NAME = re.compile(r"\b[A-Za-z_]\w*")


class Expander:
    """Expands words with the variables as they are now."""

    def __init__(self, variables: Variables, *, under_slurm: bool) -> None:
        self.variables = variables
        self.under_slurm = under_slurm
        """The script is for sbatch: its variables are set, to what we do not know."""
        self.depth = 0
        self.finds_unset = False
        """Was a variable of the environment tested that nobody set, since a condition began?"""
        self.substituted: Callable[[Part], Value | None] = lambda part: None
        """What a command substitution gives; null: only a run would tell."""

    def fields(self, parts: Sequence[Part], *, tested: bool = False) -> list[Value]:
        """Words that one word becomes. `asked`: a condition asks, so what nobody set is empty."""
        braces = [
            (at, match)
            for at, part in enumerate(parts)
            if part.kind == "text" and not part.quoted
            for match in _BRACES.finditer(part.text)
        ]
        if 0 < len(braces) <= _BRACES_LIMIT:
            at, match = braces[0]
            head, tail = parts[at].text[: match.start()], parts[at].text[match.end() :]
            each = [replace(parts[at], text=head + text + tail) for text in _alternatives(match)]
            self.variables.charge(len(each) * len(parts) * _BRACED, parts[at].place)
            words = ([*parts[:at], one, *parts[at + 1 :]] for one in each)
            return [field for word in words for field in self.fields(word, tested=tested)]
        done: list[Value] = []
        now: list[Piece] | None = None
        for part in parts:
            if part.kind == "text":
                now = now or []
                now.append(Piece(part.text, part.place))
                continue
            for at, value in enumerate(self._values(part, tested=tested)):
                if at and now is not None:
                    done.append(tuple(now))
                    now = None
                if part.quoted:
                    now = now or []
                    now.extend(value)
                else:
                    now = _split(value, done, now)
        return done if now is None else [*done, tuple(now)]

    def joined(self, parts: Sequence[Part], *, tested: bool = False) -> Value:
        """One value, unsplit, as on the right of an assignment."""
        pieces: list[Piece] = []
        for part in parts:
            if part.kind == "text":
                pieces.append(Piece(part.text, part.place))
                continue
            for at, value in enumerate(self._values(part, tested=tested)):
                loose = [piece._replace(whole=False) for piece in value]
                pieces += [Piece(" ", part.place), *loose] if at else loose
        return tuple(pieces)

    def pattern(self, parts: Sequence[Part]) -> Value:
        """A pattern of a condition, in which what stands between quotes is no pattern."""
        return tuple(
            piece._replace(text=glob.escape(piece.text)) if part.quoted else piece
            for part in parts
            for piece in self.joined((part,), tested=True)
        )

    def number(
        self, body: str, place: Place, *, tested: bool = False
    ) -> tuple[int | None, tuple[str, ...]]:
        """Value of an arithmetic expression; null: what it depends on is known only in a run."""
        value = self._inner(body, place, quoted=True, tested=tested)
        unknown = list(names_of(value))

        def of(match: re.Match[str]) -> str:
            held = self._held(match[0], None)
            if held is None and tested and not self._always(match[0]):
                self.finds_unset = True
                return "0"
            number = given(held[0]) if held and tested else held[0] if held else ()
            names = (match[0],) if not held else names_of(number)
            unknown.extend(names)
            return "0" if names or not number else f"({text_of(number)})"

        known = _NAME.sub(of, "".join(piece.text for piece in value if not piece.names))
        result = None if unknown else evaluated(known)
        if result is None and not unknown:
            unknown = [f"$(({clipped(body)}))"]
        return result, tuple(dict.fromkeys(unknown))

    def _inner(self, text: str, place: Place, *, quoted: bool, tested: bool) -> Value:
        """What stands inside an expansion."""
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            refuse(place, f"expansions nest deeper than {_DEPTH_LIMIT}: write the value")
        source = Source(text, (0,), (place,))
        try:
            return tuple(
                piece._replace(whole=part.quoted)
                for part in Lexer(source).operand(quoted=quoted)
                for piece in self.joined((part,), tested=tested)
            )
        finally:
            self.depth -= 1

    def _values(self, part: Part, *, tested: bool) -> list[Value]:
        """What an expansion gives: one value, or those of an array."""
        if part.kind == "parameter":
            values = self._parameter(part, tested=tested)
        elif part.kind == "arithmetic":
            number, unknown = self.number(part.text, part.place, tested=tested)
            text = part.written if number is None else str(number)
            values = [(Piece(text, part.place, unknown),)]
        else:
            known = self.substituted(part)
            values = [_unknown(part, clipped(part.written)) if known is None else known]
        self.variables.charge_values(values, part.place)
        in_call = self.variables.positional is None
        return [given(value) for value in values] if tested and not in_call else values

    def _parameter(self, part: Part, *, tested: bool) -> list[Value]:
        match = _PARAMETER.fullmatch(part.text)
        if not match:
            return [_unknown(part, clipped(part.written))]
        name, does = match["name"], match["does"]
        keys = bool(match["keys"])
        held = self._indirect(part, match) if keys else self._held(name, match["key"])
        if held is None and tested and (keys or name.isidentifier()):
            self.finds_unset = True
        if match["length"]:
            return [_length(match, part, held)]
        if does:
            return self._with_default(match, part, held, tested=tested)
        if held is None:
            in_call = self.variables.positional is None and not name.isidentifier()
            first: Value = (Piece("", part.place, (name,)),) if FIRST.fullmatch(name) else ()
            empty = tested and not in_call and (first or not self._always(name))
            return [first if empty else _unknown(part, name)]
        if part.quoted and (match["key"] == "*" or name == "*"):
            gap = Piece(" ", part.place)
            return [tuple(p for at, v in enumerate(held) for p in ((gap, *v) if at else v))]
        return held

    def _indirect(self, part: Part, match: re.Match[str]) -> list[Value] | None:
        """`${!A[@]}`, `${!NAME}`."""
        held = self.variables.held.get(match["name"], ())
        if isinstance(held, dict):
            return [(Piece(key, part.place),) for key in held]
        name = text_of(held)
        is_known = name.isidentifier() and not match["key"] and not match["does"]
        return self._held(name, None) if is_known else None

    def _with_default(
        self, match: re.Match[str], part: Part, held: list[Value] | None, *, tested: bool
    ) -> list[Value]:
        """`${NAME:-...}` and its kin."""
        name, does = match["name"], match["does"]
        if does[0] in "#%/^,":
            pattern = text_of(
                self._inner(match["operand"], part.place, quoted=False, tested=tested)
            )
            return [_changed(part, does, pattern, v) for v in held or [_unknown(part, name)]]
        empty = held is None or (
            does[0] == ":" and not any(text_of(given(value)) for value in held)
        )
        if held is None and self._always(name):
            return [_unknown(part, name)]
        if does[-1] == "+":
            held = None if not empty else [()]
        elif does[-1] == "?" and empty:
            return [_unknown(part, name)]
        elif empty:
            held = None
        if held is not None:
            return held
        value = self._inner(match["operand"], part.place, quoted=part.quoted, tested=tested)
        if name.isidentifier():
            value = tuple(piece._replace(fallback=True) for piece in value)
        if does[-1] == "=" and match["key"] is None and name.isidentifier():
            self.variables.assign(name, value, part.place)
        return [value]

    def _held(self, name: str, key: str | None) -> list[Value] | None:
        """Values of a parameter; null: nobody set it, or only a run would tell."""
        if not name.isidentifier():
            return self._argument(name)
        held = self.variables.held.get(name)
        if not isinstance(held, dict):
            return None if held is None or key not in (None, "0", "@", "*") else [held]
        if key in ("@", "*"):
            return list(held.values())
        at_key = text_of(self._inner(key or "0", COMMAND_LINE, quoted=True, tested=False)).strip(
            "\"'"
        )
        return [held[at_key]] if at_key in held else None

    def _argument(self, name: str) -> list[Value] | None:
        """`$@`, `$#`, `$1`, `$0`."""
        arguments, script = self.variables.positional, self.variables.held.get("0")
        if name == "0":
            return None if script is None or isinstance(script, dict) else [script]
        if arguments is None or not (name in "@*#" or name.isdecimal()):
            return None
        if name == "#":
            return [(Piece(str(len(arguments)), COMMAND_LINE),)]
        if name.isdecimal():
            at = int(name[:9]) - 1
            return arguments[at : at + 1] or None
        return list(arguments)

    def _always(self, name: str) -> bool:
        slurm = self.under_slurm and _SLURM.fullmatch(name)
        return bool(slurm or _ALWAYS_SET.fullmatch(name))


def _changed(part: Part, does: str, pattern: str, value: Value) -> Value:
    """`${A#x}`, `${A%x}`, `${A/x/y}`, `${A^^}` and their kin."""
    text = text_of(value)
    if names_of(value) or "$" in pattern or does + pattern[:1] in _ANCHORED or len(text) > _LONGEST:
        return (Piece(part.written, part.place, names_of(value) or (clipped(part.written),)),)
    if does in ("^^", ",,"):
        text = text.upper() if does == "^^" else text.lower()
    elif does[0] == "/":
        old, _, new = pattern.partition("/")
        found = re.compile(fnmatch.translate(old).removesuffix("\\Z") if old else r"(?!)")
        text = found.sub(lambda _: new, text, count=0 if does == "//" else 1)
    else:
        cuts = range(len(text) + 1)
        for cut in cuts if does in ("#", "%%") else reversed(cuts):
            gone, rest = (text[:cut], text[cut:]) if does[0] == "#" else (text[cut:], text[:cut])
            if fnmatch.fnmatchcase(gone, pattern):
                text = rest
                break
    return (Piece(text, part.place),)


def _alternatives(match: re.Match[str]) -> list[str]:
    """`{1..4}`, `{a,b}`."""
    if match["of"]:
        return match["of"].split(",")
    first, last = int(match["first"]), int(match["last"])
    width = len(match["first"]) if match["first"][0] == "0" else 0
    numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
    return [str(number).zfill(width) for number in numbers]


def _length(match: re.Match[str], part: Part, held: list[Value] | None) -> Value:
    """`${#NAME}`, `${#NAME[@]}`."""
    if held is None or match["does"] or (len(held) == 1 and names_of(held[0])):
        return _unknown(part, clipped(part.written))
    many = match["key"] in ("@", "*") or match["name"] in "@*"
    return (Piece(str(len(held) if many else len(text_of(held[0]))), part.place),)


def _unknown(part: Part, name: str) -> Value:
    return (Piece(part.written, part.place, (name,)),)


def _split(value: Value, done: list[Value], now: list[Piece] | None) -> list[Piece] | None:
    """Cut at blanks what stood unquoted; what is left goes on."""
    for piece in value:
        if piece.names or piece.whole:
            now = now or []
            now.append(piece)
            continue
        for at, chunk in enumerate(_BLANKS.split(piece.text)):
            if at and now is not None:
                done.append(tuple(now))
                now = None
            if chunk:
                now = now or []
                now.append(piece._replace(text=chunk))
    return now
