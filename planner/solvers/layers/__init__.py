"""Layers to stages as an integer program with a bound: `assignment` states it, `milp` solves it."""
