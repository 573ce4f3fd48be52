"""Pipeline schedules, one a file: program, passes held at the fullest moment, lower bound.

Each file defines one `Schedule`; the registry is `costmodel.schedules.SCHEDULES`.
"""
