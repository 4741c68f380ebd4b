"""What is wrong with the devices that jobs hold: faults, idleness, overuse. Pure.

bad_devices      jobs on unhealthy devices
enforcement      what keeps workers within their promises
idleness         jobs that leave their devices idle
memory_overuse   pods above their promised memory
overuse_check    whether a reported overuse may end its pod
"""
