"""What SDSP can ride on. A transport may use several protocols; protocols do not know their transports."""
