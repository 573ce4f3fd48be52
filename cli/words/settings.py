"""Settings of a launch that change, as they are typed."""

import shlex
from collections.abc import Sequence

from trainplan.planner.runtimes import SettingChange


def setting_words(settings: Sequence[SettingChange]) -> str:
    """All of them, to copy; at last those to leave out."""
    added = " ".join(_setting(one.name, one.after) for one in settings if one.after is not None)
    dropped = ", ".join(one.name for one in settings if one.after is None)
    return "; ".join(filter(None, (added, dropped and f"without {dropped}")))


def _setting(name: str, value: str) -> str:
    if not name.startswith("--"):
        return f"{name}={value}"
    quoted = value if all(map(_plain, value.split())) else shlex.quote(value)
    return f"{name} {quoted}".rstrip()


def _plain(word: str) -> bool:
    return shlex.quote(word) == word
