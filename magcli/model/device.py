"""The device that ``--device auto`` stands for."""

from pathlib import Path

DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))
"""Files that are there with NVIDIA's driver, on Linux and in Windows' subsystem for it."""


def default_device(drivers: tuple[Path, ...] = DRIVERS) -> str:
    """``cuda`` where PyTorch can use a GPU, else ``cpu``; without a driver PyTorch is not even imported."""
    if not any(driver.exists() for driver in drivers):
        return "cpu"
    try:
        import torch
    except ModuleNotFoundError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"
