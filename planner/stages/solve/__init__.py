"""Room planner/stages/solve."""
