"""Room planner/plan."""
