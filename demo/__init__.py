"""`make demo`: the product's whole story on a real control plane."""
