"""Room planner/stages/heterogeneous."""
