"""The sections of the comment, each with its values and its template in ``templates/comment``."""
