"""The conversation of a relay server, sans-I/O: events go in, outboxes fill. Time, randomness and keys are arguments."""
