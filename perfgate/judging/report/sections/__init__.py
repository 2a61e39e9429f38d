"""The sections of the comment: what each shows, and its template in ``templates/comment``."""
