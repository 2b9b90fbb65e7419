"""A public kit for testing peers and nodes: a clock to turn by hand, a small protocol, bad peers, conformance checks."""
