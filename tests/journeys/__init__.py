"""What people do with perfgate, typed as they type it and judged by what they see.

A journey starts where a stranger starts: perfgate comes from the built wheel, the home is empty, and the checkout of perfgate
is out of sight. It types commands in a shell, edits files, and reads the screen and the files that a person would open. It
imports nothing of perfgate and hands in no document that a command did not write.

A measured verdict has room for INCONCLUSIVE on a busy machine, and yet a journey must be able to fail: what it plants is so
large, or so exactly counted, that its verdict is certain.
"""
