"""A record of a measured run as a job and a layout, or the reason why it cannot be one."""
