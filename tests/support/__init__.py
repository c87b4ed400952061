"""What tests stand on: real servers, real processes, and ways to break them."""
