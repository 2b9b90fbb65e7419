"""How bytes move. A network knows nothing of the messages it carries."""
