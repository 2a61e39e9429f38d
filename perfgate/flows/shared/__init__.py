"""What several jobs do: the session, judging, the store."""
