"""How models of one cluster become one: means, robust rules, shared layers."""
