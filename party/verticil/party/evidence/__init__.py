"""What the site writes down of its own acts: the audit log, who was in earlier studies, what was taken back."""
