"""Results for people: figures, pictures, the HTML report and exports."""
