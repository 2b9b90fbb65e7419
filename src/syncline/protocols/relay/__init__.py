"""The relay network: servers that cache, deliver and route opaque messages between clients, and a client of them."""
