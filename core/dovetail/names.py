"""Every shared name, once: API group, resources, labels, annotations, variables. Data only."""

from typing import Final

GROUP: Final = "dovetail.dev"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

SCHEDULER_NAME: Final = "dovetail"
RUNTIME_CLASS: Final = "nvidia"
# What NVIDIA's NRI plugin reads of a pod: the CDI devices of a container, by its name.
CDI_CONTAINER: Final = "nvidia.cdi.k8s.io/container."
CDI_NVIDIA: Final = "nvidia.com/gpu"

# Extended resources that agents advertise and pods request: sums that kube-scheduler and kubelet count.
GPU_MILLI: Final = f"{GROUP}/gpu-milli"
GPU_MEMORY_MIB: Final = f"{GROUP}/gpu-memory-mib"
GPU_TURN: Final = f"{GROUP}/gpu-turn"
MANAGED_RESOURCES: Final = (GPU_MILLI, GPU_MEMORY_MIB, GPU_TURN)

# Node labels and annotations.
LABEL_MANAGED: Final = f"{GROUP}/managed"
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_MODEL: Final = f"{GROUP}/gpu-model"
# "true" where the agent wrote the labels by which other programs read the node's GPUs.
LABEL_DESCRIBED: Final = f"{GROUP}/gpu-labels"
# On nodes that only pretend to run pods: KWOK's annotation.
SIMULATED_NODE: Final = "kwok.x-k8s.io/node"
# The container runtime that the node of one's own machine reports: it runs processes, and no images.
PROCESSES: Final = "processes://local"
# The reason of a GPUNode's condition Ready where no vendor's library is: there is no GPU that a job could use.
NO_LIBRARY: Final = "NoLibrary"
# The image of jobs whose nodes run none: small, and has a shell and `sleep`.
UNUSED_IMAGE: Final = "busybox:1.37"
SIMULATED_DEVICES: Final = f"{GROUP}/simulated-devices"
SIMULATED_FAULTS: Final = f"{GROUP}/simulated-faults"
SIMULATED_STRANGERS: Final = f"{GROUP}/simulated-strangers"

# Pod annotations by users (or by the operator for the pods of a GPUJob).
REQUEST: Final = f"{GROUP}/gpu"
MODE: Final = f"{GROUP}/gpu-mode"
POLICY: Final = f"{GROUP}/gpu-policy"
SCORE_WEIGHTS: Final = f"{GROUP}/gpu-score-weights"
MEMORY_STRATEGY: Final = f"{GROUP}/gpu-memory-strategy"
WORKLOAD: Final = f"{GROUP}/gpu-workload"
PRIORITY: Final = f"{GROUP}/gpu-priority"
WARM_NODES: Final = f"{GROUP}/warm-nodes"

# The same for the local node: the file with the job's environment, and where its output and errors go.
ENVIRONMENT: Final = f"{GROUP}/environment"
OUTPUT_FILE: Final = f"{GROUP}/output"
ERROR_FILE: Final = f"{GROUP}/error"

# On a ResourceQuota by the operator: it limits GPUs of Dovetail as its owner limits a vendor's.
LABEL_COUNTED_QUOTA: Final = f"{GROUP}/counts-vendor-quota"
# On a namespace: "true" where pods that ask a vendor's whole GPUs (`nvidia.com/gpu: 2`) get them from Dovetail.
TRANSLATE: Final = f"{GROUP}/translate-requests"
# Kubernetes' annotation: the container of a pod that people mean if they name none.
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"

# Annotation of a GPUJob: what people call it, if its object cannot have that name.
DISPLAY_NAME: Final = f"{GROUP}/display-name"

# Annotation of a GPUJob that is a task of REST v2: the device that the request named.
TASK_DEVICE: Final = f"{GROUP}/task-device"

# Annotation of a GPUJob: the digest of the request that created it, by which the same request finds it again.
REQUEST_DIGEST: Final = f"{GROUP}/request-digest"

# Annotation of a GPUJob: who made it, set by admission.
USER: Final = f"{GROUP}/user"

# Label of a GPUJob: what it is counted for.
LABEL_PROJECT: Final = f"{GROUP}/project"
# Label of a ConfigMap: the file that a job was submitted with.
LABEL_CONFIG: Final = f"{GROUP}/config"

# Pod annotations written by the extender in the Binding, immutable after.
ALLOCATION: Final = f"{GROUP}/allocation"
VISIBLE_DEVICES: Final = f"{GROUP}/visible-devices"
MPS_PERCENTAGE: Final = f"{GROUP}/mps-percentage"
MPS_MEMORY: Final = f"{GROUP}/mps-memory"
TERM: Final = f"{GROUP}/term"


def per_container(annotation: str, *, index: int) -> str:
    """The annotation that container `index` reads by fieldRef.

    For example `dovetail.dev/visible-devices.0`.
    """
    return f"{annotation}.{index}"


# On the batch Job of a GPUJob, by the operator: which attempt of the job it is.
ATTEMPT: Final = f"{GROUP}/attempt"
# There too: a digest of the template that it was made of.
TEMPLATE: Final = f"{GROUP}/template"

# On the pods of an MPI job: the hosts, which a volume brings into the container.
HOSTFILE: Final = f"{GROUP}/mpi-hostfile"

# On the GPUJobs that are the tasks of an array or a sweep: whose they are, which one, and its parameters.
LABEL_ARRAY: Final = f"{GROUP}/array"
LABEL_TASK: Final = f"{GROUP}/task"
PARAMETERS: Final = f"{GROUP}/parameters"
# On a task that is held because the whole array is ("true"), or enough of its tasks are under way ("parallelism").
HELD_WITH: Final = f"{GROUP}/held-with-array"
# On a task: the fields of its array that it last received, as JSON.
AS_ARRAY_SAYS: Final = f"{GROUP}/as-array-says"
# On a GPUJob, by gbatch right before it deletes it again: no node could ever run it, so it was refused.
REFUSED: Final = f"{GROUP}/refused"
# On the batch Job of a GPUJob that no GPU here could ever serve: it runs on the CPU.
DEVICE: Final = f"{GROUP}/device"
ON_CPU: Final = f"{GROUP}/on-cpu"

# By which Kueue takes a job: the name of one of its local queues.
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_PREFIX: Final = "kueue.x-k8s.io/"
# On a batch Job that we made for a queue of Kueue: which. Kueue labels Jobs by itself where a default queue is.
HANDED_TO: Final = "dovetail.dev/handed-to"

# The manager of GPUJobs whose `spec.managedBy` is empty.
MANAGER: Final = f"{GROUP}/operator"
# The manager of a GPUJob that records an object of another kind, its guest: the guest's own controller makes the pods.
GUESTS_MANAGER: Final = f"{GROUP}/guest"
# By which Dovetail's queue takes an object of another kind, or a pod.
LABEL_QUEUE: Final = f"{GROUP}/queue"
# On a namespace, by its administrator: "true" where nothing gets a GPU past the queue.
QUEUE_ONLY: Final = f"{GROUP}/queue-only"
# The scheduling gate of a guest's pods: the operator removes it when the pod has a place.
QUEUE_GATE: Final = f"{GROUP}/queue"
# Annotation of a guest and label of its pods, by the webhook: which pods are this guest's.
RUN: Final = f"{GROUP}/run"
# On a guest's pod, by the operator: `<UID of its GPUJob>/<index of the worker>`.
SEAT: Final = f"{GROUP}/seat"
# On a pod in the queue, by people: the group that it starts with, and the number of pods in that group.
POD_GROUP: Final = f"{GROUP}/pod-group"
POD_GROUP_SIZE: Final = f"{GROUP}/pod-group-size"
# On a pod in the queue, by the webhook: the object of another API by which it starts with others, as KIND.GROUP/NAME.
GANG: Final = f"{GROUP}/gang"
# On the LeaderWorkerSets of a DisaggregatedSet, by the webhook: the names of all its roles.
GANG_ROLES: Final = f"{GROUP}/gang-roles"
# On a guest, by people: "false" as `spec.preemptible` of a GPUJob.
PREEMPTIBLE: Final = f"{GROUP}/preemptible"

# On the batch Job of a GPUJob, by the operator: what its memory estimate was based on at admission.
MEMORY_ESTIMATE: Final = f"{GROUP}/memory-estimate"
# There too: the request of each worker, where the job's right size counts.
RIGHT_SIZE: Final = f"{GROUP}/right-size"

# In the pod template of a GPUJob, by the operator: the plan that the pods are of (JSON: job UID, generation, nodes).
PLAN: Final = f"{GROUP}/plan"
# On a pod of an Indexed Job, by the Job controller: which of them it is, from 0.
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

# On the pods of a GPUJob, by the operator: when they are going to be ended so that another job may start (RFC 3339); a
# file in the first container of each shows it.
PREEMPTING_AT: Final = f"{GROUP}/preempting-at"
NOTICE_VOLUME: Final = "dovetail-notice"
NOTICE_FOLDER: Final = "/etc/dovetail"

# Pod labels.
LABEL_JOB: Final = f"{GROUP}/job"
LABEL_JOB_NUMBER: Final = f"{GROUP}/job-number"
# On the pods of a reservation: programs on the devices that these pods hold are not strangers.
LABEL_RESERVATION: Final = f"{GROUP}/reservation"
# The type of a GPUJob's condition: it leaves its GPUs idle.
CONDITION_IDLE: Final = "Idle"
# On a placeholder pod, by the operator: the UID of the GPUJob for whose worker an autoscaler is to add a node.
LABEL_PLACEHOLDER: Final = f"{GROUP}/placeholder"
# The scheduler of these pods does not exist: they ask for nodes, and must never get one.
PLACEHOLDER_SCHEDULER: Final = "dovetail-placeholder"
# Their PriorityClass.
PLACEHOLDER_CLASS: Final = "dovetail-placeholder"
# On the batch Job of a GPUJob: the vendor's resource that its pods ask; without it they ask managed nodes.
GPU_RESOURCE: Final = f"{GROUP}/gpu-resource"

# Environment of a container that holds devices.
ENV_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
ENV_MPS_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
ENV_MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
ENV_MPS_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
ENV_CUDA_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
ENV_CUDA_ORDER: Final = "CUDA_DEVICE_ORDER"
ENV_GPU_UUIDS: Final = "DOVETAIL_GPU_UUIDS"
ENV_JOB_ID: Final = "DOVETAIL_JOB_ID"
ENV_TASK_ID: Final = "DOVETAIL_ARRAY_TASK_ID"
ENV_SLURM_TASK_ID: Final = "SLURM_ARRAY_TASK_ID"
ENV_GFLOW_TASK_ID: Final = "GFLOW_ARRAY_TASK_ID"
ENV_ARRAY_JOB_ID: Final = "DOVETAIL_ARRAY_JOB_ID"
ENV_SLURM_ARRAY_JOB_ID: Final = "SLURM_ARRAY_JOB_ID"
# The file that a job was submitted with, in its container.
ENV_CONFIG: Final = "DOVETAIL_CONFIG"
NO_DEVICES: Final = "void"
# By these other vendors' container runtimes give devices, as NVIDIA's does by its own. Those that only narrow what a
# container has (HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK) are the user's.
ENV_OTHER_VISIBLE_DEVICES: Final = ("AMD_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES")

# The namespace of the chart's own objects, by default.
RELEASE_NAMESPACE: Final = "dovetail-system"
# The pods of GPUJobs have this PriorityClass, which every user may read. Its annotation names the chart's namespace.
PRIORITY_CLASS: Final = "dovetail-gpujob"
RELEASE: Final = "dovetail.dev/release-namespace"
# On the same PriorityClass: a kube-scheduler outside the release calls the extender.
ATTACHED: Final = "dovetail.dev/attached"
# The configuration of a release: a ConfigMap in its namespace, and the key in it.
CONFIG: Final = "dovetail-config"
CONFIG_FILE: Final = "gpu_config.yaml"

# The Leases of those of which one acts at a time, in the release's namespace. The chart's roles name them too.
OPERATOR_LEASE: Final = "dovetail-operator"
SCHEDULER_LEASE: Final = "dovetail-scheduler"
EXTENDER_LEASE: Final = "dovetail-extender"
# ConfigMaps of the operator: the last job number of each namespace, what was learned of run times, which every user may
# read, and the last moves of deleted jobs.
JOB_NUMBERS: Final = "dovetail-job-numbers"
ESTIMATES: Final = "dovetail-estimates"
MOVES: Final = "dovetail-moves"
# The label and its value by which dovetail-certificates recognizes the Secrets that it may replace.
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
CERTIFICATES_MANAGER: Final = "dovetail-certificates"

# Drivers of dynamic resource allocation (DRA) that hand out whole or shared GPUs, as their ResourceSlices name them.
# compute-domain.nvidia.com is none of them: it hands out channels between nodes.
GPU_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "hami-core-gpu.project-hami.io")

# The volume driver that brings MPS's folders into a container, the attribute that says which, and its values.
MPS_DRIVER: Final = f"mps.{GROUP}"
MPS_FOLDER_ATTRIBUTE: Final = "folder"
MPS_PIPE_FOLDER: Final = "pipe"
MPS_SHM_FOLDER: Final = "shm"


def mps_volume(folder: str) -> str:
    """The name that the volume with this folder has in every pod, such as `dovetail-mps-pipe`."""
    return f"dovetail-mps-{folder}"


# What the sandbox's simulated nodes read from a pod: how long it runs, and how it ends.
RUN_SECONDS: Final = f"sandbox.{GROUP}/run-seconds"
EXIT_CODE: Final = f"sandbox.{GROUP}/exit-code"
