"""Posting to a code forge: one Protocol, one HTTP session, one folder of hosts; only here HTTP is spoken."""
