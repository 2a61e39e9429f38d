"""`perfgate report`: what a folder says, in the forms that CI hosts show."""
