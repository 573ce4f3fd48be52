"""All that the runtime stops at, in its order."""

from trainplan.planner.runtimes.megatron_lm.read.degrees import DEGREE_CHECKS
from trainplan.planner.runtimes.megatron_lm.read.network import MODEL_CHECKS
from trainplan.planner.runtimes.megatron_lm.read.run import RUN_CHECKS
from trainplan.planner.runtimes.megatron_lm.read.validator import FIRST, LAST, SHAPE, SHARDING

CHECKS = (*FIRST, *DEGREE_CHECKS, *SHARDING, *SHAPE, *LAST, *MODEL_CHECKS, *RUN_CHECKS)
