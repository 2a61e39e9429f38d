"""The two documents that join the measuring and the judging half: frozen records, base
units, no behaviour.
"""
