"""Syncline lands decentralised pub/sub networks in Spark, with proof."""
