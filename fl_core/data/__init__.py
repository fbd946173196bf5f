"""Data sets: published ones, folders of images, drawn ones, and what options say of them."""
