"""Room planner/space."""
