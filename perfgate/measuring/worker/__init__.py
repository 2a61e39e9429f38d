"""The child's side: the fork server that imports torch once, and the worker that
answers the conductor's requests.
"""
