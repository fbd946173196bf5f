"""Flower's private modules, which may change with any release: imported only here."""
