"""`perfgate serve`: recordings and the runs of main over HTTP, as pages and as JSON
(FastAPI).
"""
