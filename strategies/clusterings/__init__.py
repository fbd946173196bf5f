"""How clients are grouped: a module for each way, and the maths they share."""
