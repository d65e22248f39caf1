"""The user's problem: its data, its labels, its metric."""

from ldsearch.tasks.classification import TextClassification

__all__ = ["TextClassification"]
