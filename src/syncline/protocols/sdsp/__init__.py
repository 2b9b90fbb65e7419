"""Streaming Data Sync Protocol: an object, then its changes, over any transport.

Pure rooms (`wire`, `rules`, `columns`, `rebuild`, `deltas`, `checksums`) know no clock and no socket; `session` is the
conversation without I/O. docs/protocols/sdsp.md says which requirement is met where.
"""
