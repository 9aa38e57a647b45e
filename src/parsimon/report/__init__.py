"""What people see of a run: the progress, the table, the picture."""
