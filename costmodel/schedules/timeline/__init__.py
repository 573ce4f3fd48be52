"""When the passes of a program run, and what no order of them can beat.

`clock` runs a program; `cycles` and `critical_path` give its end for many durations at once;
`release_times`, `one_machine_bound` and `lower_bounds` hold for every order of the passes.
"""
