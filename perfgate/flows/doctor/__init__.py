"""`perfgate doctor`: does the gate fire on this machine?"""
