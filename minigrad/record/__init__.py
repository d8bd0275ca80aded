"""A run as plain data: what ops made, what came back, and what that means."""
