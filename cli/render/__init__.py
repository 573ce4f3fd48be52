"""Results as text: the only place where bytes become GiB."""
