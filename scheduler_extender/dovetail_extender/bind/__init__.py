"""The bind: check again, promise the devices, write once; and binds without an outcome."""
