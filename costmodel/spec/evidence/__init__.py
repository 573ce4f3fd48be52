"""Documents of what was measured and fitted: profiles, runs, calibrations, constants, intervals.

Each is a frozen form with units in its keys. What they mean for a machine is worked out in
`costmodel.machine` and `costmodel.measured`.
"""
