"""Distribution of a model over devices by the user's code (`keras.distribution`)."""

from __future__ import annotations

Mesh = tuple[tuple[str, int], ...]  # axes of the devices: name and length


def get_distribution_name() -> str:
    """Return the name of the distribution (`DataParallel`, ...); empty if none is set."""
    import keras

    known = keras.distribution.distribution()
    return "" if known is None else type(known).__name__


def get_device_mesh() -> Mesh:
    """Return the device mesh of the distribution; empty on one device."""
    import keras

    known = keras.distribution.distribution()
    if known is None:
        return ()
    mesh = known.device_mesh
    return tuple((str(name), int(size)) for name, size in zip(mesh.axis_names, mesh.shape, strict=True))
