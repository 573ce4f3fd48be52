"""Room profiler/watch."""
