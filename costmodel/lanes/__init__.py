"""Work of a step on lanes beside the GPU: copies, the CPU, drives and the network.

`loads` has the lanes and the least time they need, `work` the items and their longest path,
`timeline` when each item runs, `placed` what lies where and how fast it moves, `offloaded_step` the
step of runtimes that offload, `methods` the methods of papers by name.
Nothing of ours but the base is imported: what a layer costs comes in as columns.
"""
