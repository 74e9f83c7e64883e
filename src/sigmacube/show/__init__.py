"""What people look at: plots, the report, the viewer."""
