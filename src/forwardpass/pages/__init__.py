"""What was found out as pages of HTML: one file each, that needs nothing beside itself."""
