"""Room planner/search."""
