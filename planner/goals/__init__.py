"""Room planner/goals."""
