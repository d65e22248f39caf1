"""Files on disk: atomic writes, records, staged folders, fingerprints, the hub."""
