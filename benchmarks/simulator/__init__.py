"""A discrete-event simulator that drives the product's own scheduling code over modelled engines."""
