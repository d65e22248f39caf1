"""Stored measurements: trials, the claims on what is being measured, per-example statistics."""

from ldsearch.storage.measurements import MeasurementCache
from ldsearch.storage.sidecar import Sidecar

__all__ = ["MeasurementCache", "Sidecar"]
