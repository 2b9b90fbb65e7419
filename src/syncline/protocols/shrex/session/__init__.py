"""The conversation of ShrEx/Sub, sans-I/O: held notifications, listeners' view of the chain, and pools of peers."""
