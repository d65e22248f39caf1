"""Long work: its progress, and stops between two steps."""
