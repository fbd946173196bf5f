"""Messages between server and clients: names, packing, arrays."""
