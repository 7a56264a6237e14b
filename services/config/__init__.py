"""Settings of the programs: what exists, what is legal, where values come from."""

from services.config.settings import DrafterSettings, GatewaySettings, ServeSettings, Settings, TargetSettings
from services.config.sources import load

__all__ = ["DrafterSettings", "GatewaySettings", "ServeSettings", "Settings", "TargetSettings", "load"]
