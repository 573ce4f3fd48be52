"""One answer to a job, a `Layout`, and how each of its fields is written as text and as a number."""
