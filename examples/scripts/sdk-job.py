#!/usr/bin/env python3
"""Submit a job, wait for it, and hold GPUs for a while, with the Python SDK.

DOVETAIL_GATEWAY is the gateway's URL, DOVETAIL_TOKEN a token of the cluster.
"""

from dovetail.sdk import Client

with Client() as client:
    job = client.submit(["python", "train.py"], image="pytorch/pytorch", gpu="2(V100)", priority=20)
    print("the job is", job.wait("Running", timeout_seconds=60))
    print(job.explain())
    job.cancel()
    print("the job is", job.wait(timeout_seconds=60))

    with client.allocation("1(V100)", timeout_seconds=60) as gpus:
        print(f"{len(gpus.devices)} GPU on {gpus.nodes[0]} is mine")
    print("and free again")
