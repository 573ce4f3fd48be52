"""Room planner/solvers/schedules."""
