"""Pure codecs that several protocols, the journal and the lake share. No clock, no socket, no event loop."""
