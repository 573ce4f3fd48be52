"""Room planner/stages/problem."""
