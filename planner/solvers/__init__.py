"""Optimisers behind the planner. Solver libraries are imported here alone, when they are needed."""
