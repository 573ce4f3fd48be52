"""Room planner/stages."""
