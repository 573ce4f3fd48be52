"""Does a plan compute what one process does?  A tiny model of its kind, in few real processes.

`shrink` makes the tiny model, `combinations` the layouts that use what the plan uses, `expected`
says what the cost model counts on each rank, `compare` what the ranks saw; `verify` goes through
all of it and tells as it goes.
"""
