"""All that the runtime stops at, in its order."""

from __future__ import annotations

from trainplan.planner.readers.megatron_lm.degrees import DEGREE_CHECKS
from trainplan.planner.readers.megatron_lm.network import MODEL_CHECKS
from trainplan.planner.readers.megatron_lm.run import RUN_CHECKS
from trainplan.planner.readers.megatron_lm.validator import FIRST, LAST, SHAPE, SHARDING

CHECKS = (*FIRST, *DEGREE_CHECKS, *SHARDING, *SHAPE, *LAST, *MODEL_CHECKS, *RUN_CHECKS)
