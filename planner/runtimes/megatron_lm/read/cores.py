"""Which release of Megatron Core had which option: `cores.json`, with its source."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

_CORE = re.compile(r"(?:core|mcore|megatron)[-_ =:v]*0\.(\d{1,2})|^v?0\.(\d{1,2})(?:\.\d+)*$", re.I)
_MONTH = re.compile(r"(?:20)?(2\d)[.-](0[1-9]|1[0-2])")


@cache
def _table() -> Mapping[str, Any]:
    text = resources.files("trainplan.planner.runtimes.megatron_lm").joinpath("cores.json")
    found: dict[str, Any] = json.loads(text.read_text("utf-8"))
    return found


@cache
def _added() -> Mapping[str, int]:
    cores = _table()["cores"].items()
    return {flag: int(core) for core, one in cores for flag in one["added"]}


def core_of(release: str | None) -> int | None:
    """The 12 of Megatron Core 0.12; null: the name, a version or a month, says none.

    A container (`nemo:24.07`) has the last core before its month.
    """
    text = release or ""
    if found := _CORE.search(text):
        return int(found[1] or found[2])
    if not (month := _MONTH.search(text)):
        return None
    stated = f"20{month[1]}-{month[2]}"
    older = [int(core) for core, one in _table()["cores"].items() if one["month"] <= stated]
    return max(older, default=min(map(int, _table()["cores"])))


def had(flag: str, core: int) -> bool:
    """Did that release have an option which this one has not?"""
    first, last = _table()["gone"].get(flag, (1, 0))
    return bool(first <= core <= last)


def since(flag: str) -> int:
    """The release from which on there is an option of this one; 0: of old."""
    return _added().get(flag, 0)


def of_cores(flag: str) -> str:
    """Which releases had an option that this one has not: ` of Megatron Core 0.8 to 0.12`."""
    if flag in _table()["before"]:
        return " of Megatron-LM before Megatron Core 0.4"
    if flag not in _table()["gone"]:
        return ""
    first, last = _table()["gone"][flag]
    return f" of Megatron Core 0.{first}" + (f" to 0.{last}" if last > first else "")
