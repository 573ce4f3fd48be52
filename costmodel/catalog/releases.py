"""Releases of Megatron Core: what of the price is the software's, and changes with it."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources

from pydantic import PositiveFloat

from trainplan.costmodel.base import shortened
from trainplan.costmodel.spec import Spec

_MONTH = re.compile(r"(?<![\d.])(?:20)?(2\d)[.-](0[1-9]|1[0-2])(?!\d)")
"""Of a container, `26.04.01`, or of a date, `2026-05`."""
_CORE = re.compile(r"(?<![\d.])0\.(\d{1,2})(?!\d)")
"""Of Megatron Core, `0.17.1`."""


class Release(Spec):
    """One release, and what its layers of experts take of the host."""

    container: str
    """Of NeMo: year and month."""
    core: str
    """Of Megatron Core that the container has."""
    experts: PositiveFloat
    """Host time of a layer of experts over the constant `host_moe`."""
    overlapped: PositiveFloat
    """Host time of a layer whose exchange of tokens overlaps compute over that of one whose
    exchange does not."""
    source: str
    since: str = ""
    """Month of the first build of its kind; empty: that of the container."""

    @property
    def text(self) -> str:
        """Both its names."""
        return f"{self.container} (Megatron Core {self.core})"

    @staticmethod
    def core_of(stated: str | None) -> int | None:
        """The 15 of Megatron Core 0.15 that a name states; null: it states none that is known."""
        text = stated or ""
        if not _MONTH.search(text):
            return max((int(one) for one in _CORE.findall(text)), default=None)
        month = _month(text)
        known = [one.core for one in releases() if (one.since or one.container) <= month]
        return int(known[-1].partition(".")[2]) if known else None

    def notes(self, stated: str) -> Iterator[str]:
        """What of a stated name differs, a sentence each."""
        month, stated = _month(stated), shortened(stated)
        if not month:
            yield (
                f"release {stated!r} is not known: priced as {self.text}, the newest; give a "
                "container (26.04), a version of Megatron Core (0.17) or a month (2026-05)"
            )
        elif month != self.container:
            yield f"release {stated!r} is not in the catalog: priced as {self.text}"


@cache
def releases() -> tuple[Release, ...]:
    """All that are known, oldest first."""
    folder = resources.files("trainplan.costmodel.catalog")
    table = tomllib.loads(folder.joinpath("releases.toml").read_text(encoding="utf-8"))
    return tuple(Release.model_validate(one) for one in table["release"])


def release_of(stated: str | None) -> Release:
    """The release of that name, the last known before it, or the newest where none is read.

    A name is a container (`nemo:26.04.01`), a version of Megatron Core (`core 0.17.1`) or a month
    (`2026-05`).
    """
    known = releases()
    if month := _month(stated or ""):
        older = [one for one in known if (one.since or one.container) <= month]
        return older[-1] if older else known[0]
    return known[-1]


def _month(text: str) -> str:
    """Year and month of a name; empty: it has none."""
    if found := _MONTH.search(text):
        return f"{found[1]}.{found[2]}"
    minor = max((int(one) for one in _CORE.findall(text)), default=None)
    if minor is None:
        return ""
    of_core = {int(one.core.partition(".")[2]): one.container for one in releases()}
    older = [core for core in of_core if core <= minor]
    return of_core[max(older) if older else min(of_core)]
