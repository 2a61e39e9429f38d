"""The forges perfgate can post to, one file each.

A member defines ``NAME``, ``TOKEN_VARIABLES`` (where its token is looked for, in order) and
``connect(event, token, *, sleep, clock) -> Forge``.
"""
