"""Division of a traced step over the devices of a mesh: local shapes, and the collectives between them."""
