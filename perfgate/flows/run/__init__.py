"""`perfgate run`: the checklist on one workload, measured or recorded."""
