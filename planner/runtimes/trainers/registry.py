"""Projects whose files are written."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from trainplan.planner.runtimes.hf_trainers.tables import WRITTEN
from trainplan.planner.runtimes.key_tables.engine import least_engine_bytes
from trainplan.planner.runtimes.key_tables.whole import RUNTIME, WHOLE, whole_launch, whole_table
from trainplan.planner.runtimes.trainers.over_transformers import over_transformers
from trainplan.planner.runtimes.trainers.trainer import Trainer, joined


def _over_megatron(name: str) -> Trainer:
    table = whole_table(WHOLE[name])
    whole = Trainer(table.title, table.version, (RUNTIME,), whole_launch(name))
    return replace(whole, kept_free=least_engine_bytes) if table.has_engine else whole


_ENGINES = (
    {name: over_transformers(table) for name, table in WRITTEN.items()},
    {name: _over_megatron(name) for name in WHOLE},
)
TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {
        name: joined(*(some[name] for some in _ENGINES if name in some))
        for name in dict.fromkeys(name for some in _ENGINES for name in some)
    }
)
"""By the name that `plan export --trainer` takes."""
