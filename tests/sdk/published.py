# Scripts of before, with their imports as they are: tests/sdk/test_legacy.py runs this file with the extra `legacy`.
import asyncio
import sys

from backend.algorithm_engine.core import AlgorithmTrainingEngine, TrainingConfig
from backend.algorithm_engine.gpu_resource_integration import (
    TrainingGPUConfig,
    get_gpu_resource_manager,
    get_pytorch_gpu_integration,
    get_tensorflow_gpu_integration,
)
from src.gpu_memory_guard import GPUMemoryGuard
from src.gpu_parser import GPUResourceParser
from src.gpu_scheduler import GPUScheduler, SchedulingPolicy, SchedulingRequest
from test_refactored_api import RFUAVClient

base_url = sys.argv[1]

manager = get_gpu_resource_manager()
config = TrainingGPUConfig(
    gpu_count=2,
    gpu_type="V100",
    memory_gb=16,
    distributed_training=False,
    mixed_precision=True,
    gpu_memory_fraction=0.8,
)
if manager.validate_gpu_requirements(config):
    node = manager.allocate_gpu_resources(config)
    print("allocated on", node)
    print("devices", len(manager.get_gpu_monitoring_data()["nodes"][0]["devices"]))
    print("nodes", [each["node_name"] for each in manager.get_available_gpu_nodes()])
    print("cleaned up", manager.cleanup_gpu_resources(node, config.gpu_count))

for integration in (get_pytorch_gpu_integration(), get_tensorflow_gpu_integration()):
    print("integration", type(integration).__name__)

parsed = GPUResourceParser().parse_gpu_resource("8G,0.5")
print("parsed", parsed.memory_gb, parsed.compute_ratio, parsed.count, parsed.vendor, parsed.model)

gpu_parser, memory_guard = GPUResourceParser(), GPUMemoryGuard()
print("fits", bool(memory_guard.validate_memory_requirement("1(V100)", 16.0)))

k8s_client = object()
scheduler = GPUScheduler(k8s_client, gpu_parser, memory_guard)
scheduler.scheduling_policy = SchedulingPolicy.BALANCED
request = SchedulingRequest(
    pod_name="pod-1", namespace="red", gpu_requirement="1(V100)", memory_requirement=16.0, priority=10
)
scheduler.add_scheduling_request(request)
print("processed", [(each.pod_name, where) for each, where in scheduler.process_pending_requests()])
print("scheduled on", scheduler.schedule_pod(request))

engine = AlgorithmTrainingEngine()
engine.register("count", algorithm=lambda params, data, device: (device.node, len(data)))
training = TrainingConfig(
    name="mine", algorithm_params={"gpu_config": {"enabled": True, "gpu_count": 1, "framework": "none"}}
)
print("trained", asyncio.run(engine.train_algorithm("count", training, [1, 2, 3])))

client = RFUAVClient(base_url)
print("resources", sorted(client.resources().limits)[:1])
print("tasks", len(client.tasks()))
