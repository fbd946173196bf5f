"""How a client sees its images: HoG, pixels, networks, functions of its own."""
