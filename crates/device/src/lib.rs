//! Devices and the one executor of effects.
