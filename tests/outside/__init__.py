"""Things added from outside the package: one file and one row of a table each."""
