"""Room planner/solvers/nodes."""
