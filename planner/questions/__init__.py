"""Questions of a job or a layout: search, estimate, simulate, and the notes of their answers."""
