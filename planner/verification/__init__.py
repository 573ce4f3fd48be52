"""Does a plan compute what one process does?  A tiny model of its kind, in few real processes.

`shrink` makes the tiny model, `by_megatron` and `by_torch` the layouts that use what the plan
uses, `expected` what the cost model counts on each rank; `by_runtime` picks by the runtime.
`compared` has what the ranks computed; `runs` yields each run as it ends.
"""
