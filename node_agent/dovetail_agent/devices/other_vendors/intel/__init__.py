"""Intel's devices through Level Zero Sysman."""
