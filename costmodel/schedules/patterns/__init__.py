"""Room costmodel/schedules/patterns."""
