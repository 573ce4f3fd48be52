"""Room planner/questions."""
