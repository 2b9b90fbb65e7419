"""SVS-PS: named, segmented publications in a group that keeps in step by state vectors, over NDN.

Pure rooms (`wire`, `rules`, `columns`, `rebuild`) know no clock and no socket; `session` is the conversation without I/O;
`service` runs it. docs/protocols/svs.md says which requirement is met where.
"""
