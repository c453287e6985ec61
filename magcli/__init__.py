"""magcli: composable pipeline stages that train a reasoning model by the Magistral recipe."""

__version__ = "0.2.0"
