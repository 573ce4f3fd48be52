"""Pipeline schedules by themselves: stated, compared, run on a clock, or found by a solver."""
