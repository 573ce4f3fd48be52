"""Groups of ranks that megatron-core makes, by our names of them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from megatron.core import parallel_state as groups

from trainplan.profiler.torch_on_use import dist

NAMES: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("tp", groups.get_tensor_model_parallel_group),
    ("pp", groups.get_pipeline_model_parallel_group),
    # of two stages one sends over the group of all ranks, so that both ways overlap
    ("pp", lambda: dist.group.WORLD),
    ("dp", lambda: groups.get_data_parallel_group(with_context_parallel=True)),
    ("dp", groups.get_data_parallel_group),
    (
        "dp",
        lambda: groups.get_data_parallel_group(
            with_context_parallel=True, partial_data_parallel=True
        ),
    ),
    ("expert dp", groups.get_expert_data_parallel_group),
    ("expert dp", lambda: groups.get_expert_data_parallel_group(partial_expert_data_parallel=True)),
    # of the copies of a sharded optimizer
    (
        "copies",
        partial(groups.get_inter_distributed_optimizer_instance_group, check_initialized=False),
    ),
    ("ep", groups.get_expert_model_parallel_group),
    ("etp", groups.get_expert_tensor_parallel_group),
    ("etp ep", groups.get_expert_tensor_and_model_parallel_group),
    ("ends", lambda: groups.get_embedding_group(check_initialized=False)),
)
"""Name and the function that gets it. Ends: of a pipeline, which share a tied table."""


def group_names() -> Mapping[Any, str]:
    """Group of this rank -> its name."""
    return {group: name for name, get in NAMES if (group := get()) is not None}
