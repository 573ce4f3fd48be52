"""Projects whose files are written."""

from collections.abc import Mapping
from types import MappingProxyType

from trainplan.planner.runtimes.hf_trainers.tables import WRITTEN
from trainplan.planner.runtimes.trainers.over_transformers import over_transformers
from trainplan.planner.runtimes.trainers.trainer import Trainer

TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {name: over_transformers(table) for name, table in WRITTEN.items()}
)
"""By the name that `plan export --trainer` takes."""
