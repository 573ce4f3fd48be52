"""Exact solvers, behind plain data: nothing here knows a layout.

`schedules` orders passes, `layers` assigns layers to stages, `nodes` orders nodes. Libraries (PuLP
with HiGHS, OR-Tools) are imported inside functions, here alone.
"""
