"""How a client trains: the loop, local objectives, what it stores."""
