"""Room planner/stages/bounds."""
