"""How a client sees its samples: HoG, other formulas, networks, functions of its own."""
