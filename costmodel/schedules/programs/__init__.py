"""Pipeline schedules by kin: program, passes held at the fullest moment, lower bound of each.

The registry is `costmodel.schedules.SCHEDULES`.
"""
