#!/usr/bin/env python3
"""REST v2 by TaskClient: a training on cuda:0, an inference on cuda:1, other limits, and an early end.

DOVETAIL_GATEWAY is the gateway's URL, DOVETAIL_TOKEN a token of the cluster.
"""

import os

from dovetail.sdk import TaskClient

with TaskClient(os.environ["DOVETAIL_GATEWAY"], os.environ["DOVETAIL_TOKEN"]) as client:
    gpus = client.gpus()
    print(f"{gpus.count} GPUs, the first is a {gpus.devices[0].name} on {gpus.devices[0].node}")

    training = client.start_training(
        model="resnet50",
        num_classes=10,
        train_path="/data/train",
        val_path="/data/val",
        save_path="/out",
        device="cuda:0",
        epochs=5,
    )
    inference = client.start_inference(
        cfg_path="/cfg.yaml", weight_path="/weights.pt", source_path="/images", device="cuda:1"
    )
    for started in (training, inference):
        task = client.wait(started.task_id, status="running", timeout_seconds=60)
        print(f"{task.type} on {task.device} is {task.status}")

    limits = client.set_limits({"cuda:0": {"training": 2, "inference": 4}}).limits["cuda:0"]
    print(f"cuda:0 now takes {limits.training} trainings and {limits.inference} inferences")
    print(f"on cuda:0 now: {client.resources().device_usage['cuda:0'].training} training")

    for started in (training, inference):
        client.cancel(started.task_id)
        ended = client.wait(started.task_id, timeout_seconds=60)
        print(f"{ended.type} is {ended.status}")
