"""Code shared by several flows: the session, judging, the store."""
