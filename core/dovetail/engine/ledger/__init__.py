"""What is promised of which device. The engine's only mutable state."""
