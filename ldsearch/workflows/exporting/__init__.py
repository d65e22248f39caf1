"""Exports, what is checked of them, and what folders say of themselves."""
