"""What is wrong with an installation, from objects that were read: findings, and how to fix them. Pure.

picture        the objects, or why they could not be read
findings       the findings, their levels and their number
control_plane  checks of what the chart installs
nodes          checks of nodes with GPUs
pod_security   checks of Pod Security in namespaces with GPU pods
neighbours     other systems that place or admit GPU work
presets        which presets of the chart fit, and what is missing for each
diagnosis      all checks together
"""
