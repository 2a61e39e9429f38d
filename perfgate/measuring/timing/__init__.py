"""How calls are timed: one by one, in windows, in interleaved blocks; and on which
testbed.
"""
