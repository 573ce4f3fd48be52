"""Room planner/work."""
