"""Posting to a code forge: one Protocol, one HTTP session, one folder of hosts; HTTP is
used only here.
"""
