"""Room profiler/journal."""
