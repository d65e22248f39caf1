"""The verbs: each from its options to its result, and how that is printed."""
