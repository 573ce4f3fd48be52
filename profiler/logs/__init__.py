"""Room profiler/logs."""
