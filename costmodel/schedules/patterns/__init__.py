"""Building blocks of programs: orders of passes that several schedules share."""
