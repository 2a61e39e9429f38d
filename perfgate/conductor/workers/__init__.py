"""Worker processes: started in a clean environment, limited, ended, and cleaned up
after.
"""
