"""Which node comes where: orders of nodes by the links between them, with a bound."""
