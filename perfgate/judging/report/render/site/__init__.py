"""The pages of main's history: one function a page, over the content of a site. No
network, no script.
"""
