"""Orders of passes: priority rules, cyclic schedules, then a constraint program with its bound."""
