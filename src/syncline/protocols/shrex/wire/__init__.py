"""Bytes and messages of ShrEx/Sub: notifications, block headers, results of requests."""
