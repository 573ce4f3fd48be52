"""What commands print that print their own words, or parts of what they are given.

Source: https://www.gnu.org/software/coreutils/manual/coreutils.html (9.5).
"""

import posixpath
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from trainplan.planner.shell.arithmetic import evaluated

_LONGEST = 1000
"""Of a sequence."""


def printed(name: str, words: Sequence[str], given: str) -> str | None:
    """Text of a command; null: only a run would tell."""
    try:
        return _PRINT[name](words, given)
    except (KeyError, ValueError, IndexError):
        return None


def fields_of(text: str, blanks: str | None, most: int) -> list[str]:
    """Fields of a line, cut at characters of IFS (null: at blanks); so many at most, 0: all."""
    if blanks is None:
        return text.split(None, most - 1)
    if not blanks or most == 1:
        return [text]
    return re.split(f"[{re.escape(blanks)}]", text, maxsplit=max(most - 1, 0))


def _plain(words: Sequence[str]) -> list[str]:
    return [word for word in words if word[:1] != "-"]


def _folder(words: Sequence[str], _: str) -> str | None:
    name = _plain(words)[0]
    return (posixpath.dirname(name) or ".") if name.strip("./") else None


def _sequence(words: Sequence[str], _: str) -> str | None:
    start, step = ([*map(int, words[:-1]), 1, 1] if words[1:] else [1, 1])[:2]
    numbers = range(start, int(words[-1]) + 1, step)
    return "\n".join(map(str, numbers)) if len(numbers) <= _LONGEST else None


def _cut(words: Sequence[str], given: str) -> str | None:
    options = {w[1]: w[2:] or after for w, after in pairwise([*words, ""]) if w[0:1] == "-"}
    at, lines = int(options["f"]) - 1, given.splitlines()
    cuts = [line.split(options.get("d", "\t")) for line in lines]
    return "\n".join(cut[at] if cut[1:] else cut[0] for cut in cuts) if at >= 0 else None


_PRINT: dict[str, Callable[[Sequence[str], str], str | None]] = {
    **dict.fromkeys(("realpath", "readlink"), lambda words, _: " ".join(_plain(words))),
    "dirname": _folder,
    "basename": lambda words, _: posixpath.basename(words[0]).removesuffix("".join(words[1:])),
    "expr": lambda words, _: None if (n := evaluated(" ".join(words))) is None else str(n),
    "seq": _sequence,
    "cut": _cut,
    "xargs": lambda words, given: None if words else " ".join(given.split()),
    "wc": lambda words, given: str(
        {"-l": given.count("\n"), "-w": len(given.split())}["".join(words)]
    ),
}
PRINTING = ("echo", "cat", "tee", "printf", "pwd", "cd", *_PRINT)
"""Commands that do nothing else, and one that says where."""
