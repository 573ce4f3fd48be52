"""Room costmodel/schedules/timeline."""
