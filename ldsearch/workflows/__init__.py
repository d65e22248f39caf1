"""What each command does, as functions: the Python API."""
