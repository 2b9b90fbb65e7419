"""What is acceptable: a network message at a time, a client's token at an address. Pure: the time is an argument."""
