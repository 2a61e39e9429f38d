"""The forges perfgate can post to, one file each.

A member defines ``NAME``, ``TOKEN_VARIABLES`` (where its token is looked for, in order), ``API_URL`` and ``SERVER_URL``
(the addresses everybody uses, None where each server has its own), ``LINE`` (the page of a line of a file, below the server's
address; of ``repository``, ``commit``, ``path`` and ``line``) and
``connect(event, token, *, sleep, clock) -> Forge``.
"""
