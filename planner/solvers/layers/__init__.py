"""Room planner/solvers/layers."""
