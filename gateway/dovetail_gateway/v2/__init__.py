"""REST v2, `/api/v2`: training and inference tasks on devices, as scripts of a model service call them.

types        what v2 takes and answers
devices      the devices of the cluster by their numbers
templates    the GPUJob of a task
tasks        starts, lists and cancels tasks
resources    use, limits and measurements of the devices
routes       the routes
"""
