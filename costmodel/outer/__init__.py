"""Islands that train alone and are joined by outer steps: who they are, and what joining takes.

state_bytes_per_param: bytes that an outer optimizer keeps of a parameter, on the GPU and the host.
with_outer: the machine with the outer steps of a job.
"""

from trainplan.costmodel.outer.of_job import state_bytes_per_param, with_outer
