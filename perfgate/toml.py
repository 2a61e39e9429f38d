"""The parser of TOML files: the standard library's, and on Python 3.10 tomli, which is
the same code.
"""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]
