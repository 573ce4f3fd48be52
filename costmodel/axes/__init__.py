"""Parallel dimensions, one file each: what a dimension divides and what mathematics forbids.

To add one: write its file with `RULES`, add a line here and a field to `Layout`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainplan.costmodel.axes import cp, dp, ep, etp, groups, pp, tp
from trainplan.costmodel.layouts.rules import Rule

AXES: Mapping[str, tuple[Rule, ...]] = MappingProxyType(
    {
        "tp": tp.RULES,
        "cp": cp.RULES,
        "ep": ep.RULES,
        "etp": etp.RULES,
        "dp": dp.RULES,
        "pp": pp.RULES,
        "groups": groups.RULES,
    }
)
"""Inner to outer, the order in which ranks are numbered (experts share the inner ranks)."""
