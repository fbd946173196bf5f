"""How a client sees its samples: HoG, other formulas, networks, user-defined functions."""
