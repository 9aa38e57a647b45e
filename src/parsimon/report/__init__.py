"""What people see of results: figures, pictures, the HTML report and exports."""
