"""Room costmodel/schedules/programs."""
