"""NDN packets (format 0.3, NDNLPv2) and their signatures, as pure functions on bytes."""
