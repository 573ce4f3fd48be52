"""Islands that train alone and are joined by outer steps: who they are, and what joining takes.

ENOUGH: share of the time in local steps where their number is free.
fewest_steps: fewest local steps between syncs, for a share of the time in them.
island_count: islands of a cluster, by itself.
island_job: the job of one of the islands of its cluster.
state_bytes_per_param: bytes that an outer optimizer keeps of a parameter, on the GPU and the host.
sync_of: the sync of the islands of a job, on its machine.
whole_cluster: all islands of a job, a group each.
with_outer: the machine with the syncs of a job's islands.
with_rounds: the job with its local steps between syncs, by what one takes.
"""

from trainplan.costmodel.outer.islands import island_count, island_job, whole_cluster
from trainplan.costmodel.outer.of_job import (
    state_bytes_per_param,
    sync_of,
    with_outer,
    with_rounds,
)
from trainplan.costmodel.outer.outer_step import ENOUGH, fewest_steps
