"""Layout of a training step over devices, as the user's code states it (`keras.distribution`, `tf.distribute`)."""

from __future__ import annotations

from ..records import Frozen


class VariableBytes(Frozen):
    """Memory of the variables of a step on one device of a mesh [bytes].

    Args:
        parameters: Parameters that are trained, or the device's part of them.
        optimizer: Optimizer state.
        state: Frozen parameters, statistics, seeds and metrics.
    """

    parameters: int
    optimizer: int
    state: int


class DeviceLayout(Frozen):
    """Devices that a distribution takes, and what each of them holds.

    Args:
        devices: Devices of its mesh [-].
        replicas: Parts into which the mesh divides a batch [-].
        takes_all: Whether the mesh consists of all devices that the script found, however many they are.
        whole, each: Variables of the model, and of one device.
        keeps_batch: Whether the user's code multiplies the batch of a device with their number.
    """

    devices: int
    replicas: int
    takes_all: bool
    whole: VariableBytes
    each: VariableBytes
    keeps_batch: bool = False

    @property
    def is_data_parallel(self) -> bool:
        """Whether every device holds all variables and works on its own part of the batch."""
        return self.replicas == self.devices and self.each == self.whole


class Strategy(Frozen):
    """A strategy of `tf.distribute` whose replicas each hold the whole model.

    Args:
        name: Name of its class.
        devices: Devices that it states; None for all that it finds [-].
        keeps_batch: As for `DeviceLayout`.
    """

    name: str
    devices: int | None
    keeps_batch: bool
