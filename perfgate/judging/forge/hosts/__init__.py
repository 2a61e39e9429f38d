"""The forges perfgate can post to, one file each.

A member defines ``NAME``, ``TOKEN_VARIABLES`` (the variables that may hold its token,
in order), ``API_URL`` and ``SERVER_URL`` (the public addresses, or None if every server
has its own), ``LINE`` (the page of a line of a file, below the server's address; a
template of ``repository``, ``commit``, ``path`` and ``line``) and
``connect(event, token, *, sleep, clock) -> Forge``. A member for a CI that sets
GITHUB_ACTIONS too also defines ``read_event(environ) -> CiEvent``.
"""
