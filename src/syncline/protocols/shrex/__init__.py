"""ShrEx/Sub: notices that a block's data is available, checked against verified headers, and pools of peers to ask."""
