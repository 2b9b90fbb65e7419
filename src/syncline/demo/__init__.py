"""The demo: three nodes on loopback, one traffic per protocol, one peer that misbehaves, and the pipeline beside them.

`nodes` starts the world, the files named after what they send keep it busy, `play` decides when, `landing` runs the lake.
What the user sees of it is the command's (`cli/demo.py`).
"""
