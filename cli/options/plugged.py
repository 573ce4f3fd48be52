"""Names of plug-ins, behind those of ours."""

from trainplan.costmodel.plugins import declaring


def with_plugins(kind: str, ours: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a kind; no plug-in's entry is imported."""
    if not declaring():
        return ours
    from trainplan.costmodel.plugins import declared  # noqa: PLC0415 (seldom needed)

    return tuple(dict.fromkeys((*ours, *declared(kind))))
