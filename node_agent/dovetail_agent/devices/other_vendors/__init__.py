"""Optional: AMD's, Intel's and Ascend's devices. Each is loaded only on a node that has its vendor's library."""
