"""Names that options take: ours, and those that plug-ins declare."""

from __future__ import annotations

from trainplan.cli.options import names
from trainplan.costmodel.base.entry_points import declaring


def _with_plugins(kind: str, ours: tuple[str, ...]) -> tuple[str, ...]:
    if not declaring():
        return ours
    from trainplan.costmodel.base.plugins import declared  # noqa: PLC0415 (seldom needed)

    return tuple(dict.fromkeys((*ours, *declared(kind))))


OPTIMIZERS = _with_plugins("optimizers", names.OPTIMIZERS)
RUNTIMES = _with_plugins("runtimes", names.RUNTIMES)
SCHEDULES = _with_plugins("schedules", names.SCHEDULES)
EXPORTERS = _with_plugins("exporters", names.EXPORTERS)
LAUNCHERS = _with_plugins("launchers", names.LAUNCHERS)
PROFILE_FORMATS = _with_plugins("importers", names.PROFILE_FORMATS)
