"""Run folders: what they hold, as typed objects."""
