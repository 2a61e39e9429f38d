"""Every sentence people read, as Jinja templates."""
