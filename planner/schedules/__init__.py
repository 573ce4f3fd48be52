"""Room planner/schedules."""
