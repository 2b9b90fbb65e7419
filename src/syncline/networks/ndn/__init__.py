"""NDN: a forwarder applications attach to as they would to NFD, and the application's end of a face.

The forwarder and the endpoint are sans-I/O (packets in, packets out, the time as an argument); the drivers that move their
packets over TCP, Unix sockets, UDP and WebSockets are beside them.
"""
