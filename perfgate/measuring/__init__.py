"""The code inside a worker process: the only code that imports torch, and only when it
needs it. Only here may torch be imported, and only when it is needed.
"""
