"""The values that the engine works with: claims, columns, inventory, refusals, settings. Values only."""
