"""Room planner/questions/changes."""
