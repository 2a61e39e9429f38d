"""What a package of somebody else adds to perfgate."""
