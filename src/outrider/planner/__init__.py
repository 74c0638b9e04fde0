"""Plans how to serve one's own traffic: replays it through drafters, prices that, recommends a profile, verifies it."""
