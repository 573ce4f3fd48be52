"""Real launches of exported plans: started, watched, read, and ended to the last process."""
