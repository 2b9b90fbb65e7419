"""Bytes and text of the relay network: network messages, link control, client requests, tokens. Pure."""
