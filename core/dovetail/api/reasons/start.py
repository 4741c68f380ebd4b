"""What keeps a job from starting apart from room and limits, and what a job that starts still waits for."""

from typing import Final

from dovetail.api.reasons.clause import clause
from dovetail.api.reasons.codes import (
    BEGIN_TIME,
    CONTAINER_CREATING,
    DEPENDENCY,
    DEPENDENCY_FAILED,
    EVALUATING,
    EXTERNALLY_MANAGED,
    GANG_WAITING,
    HELD,
    INVALID,
    QUOTA,
    RESOURCES,
)

# Times
BEGINS: Final = clause("Begins", "Starts at {time} at the earliest", reason=BEGIN_TIME)
NO_TIME: Final = clause(
    "NoTime", 'beginTime "{value}" is no time: write one such as 2026-01-31T18:00:00Z', reason=INVALID
)
NEXT_ATTEMPT: Final = clause(
    "NextAttempt", "Attempt {number} starts at {time} at the earliest: {why}", reason=BEGIN_TIME
)

# Dependencies
WAITS_FOR: Final = clause("WaitsFor", "Waits for ", reason=DEPENDENCY)
TO_SUCCEED: Final = clause("ToSucceed", "{job} to succeed")
TO_END: Final = clause("ToEnd", "{job} to end")
TO_START: Final = clause("ToStart", "{job} to start")
NO_SUCH_JOB: Final = clause("NoSuchJobYet", " (there is no such job yet)")
OR: Final = clause("Or", " or ")
MORE: Final = clause("More", "{count} more")
UNMEETABLE: Final = clause("DependencyUnmeetable", "A dependency cannot be met: ", reason=DEPENDENCY_FAILED)
NOT_SUCCEEDED: Final = clause("DidNotSucceed", "{job} did not succeed")
NOT_ENDED: Final = clause("DidNotEnd", "{job} did not end")
NOT_STARTED: Final = clause("EndedWithoutStart", "{job} ended without having started")
CIRCLE: Final = clause("DependencyCycle", "The dependencies go round in a circle, {way}", reason=INVALID)
CHANGE_ONE: Final = clause("ChangeOneOfThem", ": change or delete one of these jobs")
TASK_OF: Final = clause("TaskOf", "{task} is a task of {array}")

# Holds
HELD_BY_SPEC: Final = clause("HeldBySpec", "Held: gjob release lets it go on", reason=HELD)
HELD_GUEST: Final = clause("HeldGuest", "Held: gjob release {job} lets it go on", reason=HELD)
HELD_OUT_OF_KUEUE: Final = clause(
    "HeldOutOfKueue", "Held by spec.suspend: its Job is taken out of the Kueue queue", reason=HELD
)
HELD_BY_PARALLELISM: Final = clause(
    "HeldByParallelism",
    "Held by its array {array}, which has as many tasks under way as its parallelism allows",
    reason=HELD,
)
HELD_WITH_ARRAY: Final = clause(
    "HeldWithArray", "Held with its array {array}: release that one to let it go on", reason=HELD
)

# Steps that other components take
NEXT_CYCLE: Final = clause("NextCycle", "Waiting for the next scheduling cycle", reason=EVALUATING)
BEING_DELETED: Final = clause(
    "BeingDeleted", "Is being deleted: waiting for the finalizer {finalizers} to be removed", reason=EVALUATING
)
EARLIER_JOB: Final = clause("EarlierJob", "Waiting for the run before to end", reason=EVALUATING)
EARLIER_PODS: Final = clause("EarlierPods", "Waiting for the workers of the run before to end", reason=EVALUATING)
ORPHAN_POD: Final = clause(
    "OrphanPod",
    "Pod {pod} of the run before goes on without its Job: waiting for it to end or to be deleted",
    reason=EVALUATING,
)
GUEST_UNREAD: Final = clause("GuestUnread", "Waiting for the object that it records", reason=EVALUATING)
# Also before the batch Job is created: one message means one status write.
PODS_UNMADE: Final = clause("PodsUnmade", "Waiting for its workers to be created", reason=EVALUATING)
PODS_LEAVING: Final = clause("PodsLeaving", "Waiting for its ending workers to be gone", reason=EVALUATING)
SCHEDULER_TO_COME: Final = clause("SchedulerToCome", "Waiting for the scheduler to place a worker", reason=EVALUATING)
SCHEDULER_ERROR: Final = clause("SchedulerError", "The scheduler could not decide: {message}", reason=EVALUATING)
NOT_ENOUGH_FREE: Final = clause("NotEnoughFree", "Waits until enough {what} is free", reason=RESOURCES)
SCHEDULER_REFUSES: Final = clause("SchedulerRefuses", "kube-scheduler: {message}", reason=RESOURCES)
SCHEDULER_FINDS_NONE: Final = clause(
    "SchedulerFindsNone", "The scheduler finds no place for a worker", reason=RESOURCES
)
ANOTHER_WAY: Final = clause(
    "AnotherWay", "Admitted in another way than before: its Job is recreated", reason=EVALUATING
)
RIGHT_SIZED: Final = clause(
    "RightSized", "Each worker requests {request} from now on: its Job is recreated", reason=EVALUATING
)
OTHER_TEMPLATE: Final = clause("OtherTemplate", "Its template was changed: its Job is recreated", reason=EVALUATING)
RECREATED_FOR_KUEUE: Final = clause(
    "RecreatedForKueue", "Its Job is recreated for Kueue's queue {queue}", reason=EVALUATING
)
RECREATED_FOR_DOVETAIL: Final = clause(
    "RecreatedForDovetail", "Its Job is recreated for Dovetail's own queue", reason=EVALUATING
)
NEW_PLAN: Final = clause("NewPlan", "Gets a new plan: {why}", reason=EVALUATING)
NEW_PLAN_AT: Final = clause("NewPlanAt", "Gets a new plan at {time}: {why}")
NO_PLACE_FOUND: Final = clause("NoPlaceFound", "the scheduler found no place for a worker where it is planned")
ROOM_TAKEN: Final = clause("RoomTaken", "the room on {node} is taken")
PODS_REFUSED: Final = clause("PodsRefused", "the API server refuses its pods")
OTHER_DEVICES: Final = clause("OtherDevices", "Restarts on other devices: {why}", reason=EVALUATING)
SCALED_DOWN: Final = clause(
    "ScaledDown", "Restarts with {asked} workers at most: it runs with {workers}", reason=EVALUATING
)
SCALED_UP: Final = clause(
    "ScaledUp", "Restarts with up to {asked} workers: there is room for more than {workers}", reason=EVALUATING
)
OTHER_SIZE: Final = clause(
    "OtherSize", "Restarts: the parallelism or completions of its Job were edited", reason=EVALUATING
)
TRIED_AGAIN: Final = clause("TriedAgain", "Is tried again: {why}", reason=EVALUATING)
WORKERS_WAIT: Final = clause("WorkersWait", "{absent} of {workers} workers wait: ", reason=GANG_WAITING)
CONTAINER_WAITS: Final = clause("ContainerWaits", "{node}: {message}")
CONTAINER_NOT_STARTED: Final = clause("ContainerNotStarted", "{node}: its program has not started")
CONTAINER_TO_START: Final = clause(
    "ContainerToStart", "{node} is about to start its program", reason=CONTAINER_CREATING
)
ON_CPU: Final = clause("OnCPU", "Runs on the CPU")
ON_CPU_BECAUSE: Final = clause("OnCPUBecause", "Runs on the CPU: {why}")

# Names that another object has, and refusals
EARLIER_OBJECT: Final = clause(
    "EarlierObject", "Waiting for the {kind} of an earlier GPUJob of this name to go", reason=EVALUATING
)
NAME_TAKEN: Final = clause(
    "NameTaken",
    "A {kind} named {name} exists and is not this GPUJob's: delete it, or submit under another name",
    reason=INVALID,
)
EARLIER_TASK: Final = clause(
    "EarlierTask", "Waiting for task {task} of an earlier job of this name to go", reason=EVALUATING
)
TASK_NAME_TAKEN: Final = clause(
    "TaskNameTaken",
    "A GPUJob named {name} exists and is no task of this job: delete it, or submit this job under another name",
    reason=INVALID,
)
RECORD_NAME_TAKEN: Final = clause(
    "RecordNameTaken",
    "GPUJob {name} exists already and records something else: delete it or rename this one",
    reason=INVALID,
)
API_REFUSES: Final = clause("APIRefuses", "The API server refuses the {kind}: {message}", reason=INVALID)
API_QUOTA: Final = clause("APIQuota", "The API server refuses the {kind}: {message}", reason=QUOTA)
API_REFUSES_PODS: Final = clause("APIRefusesPods", "the API server refuses its pods: {message}", reason=INVALID)
API_QUOTA_PODS: Final = clause("APIQuotaPods", "the API server refuses its pods: {message}", reason=QUOTA)
UNREADABLE: Final = clause("Unreadable", "{problem}", reason=INVALID)
OWN_FAULT: Final = clause(
    "OwnFault", "Dovetail fails on this job, which is a fault of its own: {error}", reason=INVALID
)

# Kueue
KUEUE_TOOK_IT: Final = clause("KueueTookIt", "Kueue took its Job into the queue {queue}", reason=EVALUATING)
KUEUE_HOLDS: Final = clause(
    "KueueHolds", "Waits until Kueue lets it go from the queue {queue}", reason=EXTERNALLY_MANAGED
)
KUEUE_SAYS: Final = clause("KueueSays", ": {message}")

# What admission refuses
OBJECT_UNREADABLE: Final = clause("ObjectUnreadable", "Dovetail cannot read this {kind}: {problem}")
NOT_REVIEWED: Final = clause("NotReviewed", "Dovetail's webhook does not review this object: {problem}")
WEBHOOK_FAULT: Final = clause(
    "WebhookFault", "Dovetail's webhook has an error of its own with this {kind}; its log names the uid {uid}"
)

# Of an object of another kind in the queue
PODS_WOULD_BE_REFUSED: Final = clause("PodsWouldBeRefused", "{path}: its pods would be refused: {problem}")
NODE_NAMED: Final = clause("NodeNamed", "{path}.nodeName is set: a pod in the queue gets its node when it starts")
NO_PODS: Final = clause("NoPods", "it asks for no pods, so there is nothing to queue")
NO_TEMPLATE_THERE: Final = clause("NoTemplateThere", "spec.{path} is no pod template: {problem}")
NO_WHOLE_NUMBER: Final = clause("NoWholeNumber", "spec.{field} must be a whole number from 0, and not {value}")
MOST_WORKERS: Final = clause(
    "MostWorkers", "it has {workers} pods with GPUs, and a job in the queue has at most {most}"
)
WORKERS_DIFFER: Final = clause(
    "WorkersDiffer",
    "its pods with GPUs differ in request, containers or placement: the queue plans pods of one kind, so give them the "
    "same, or queue them as objects of their own",
)
ONE_CONTAINER: Final = clause(
    "OneContainer", "annotation {annotation}: pods in the queue have their GPUs in one container, by {request}"
)
BY_ANNOTATION: Final = clause(
    "ByAnnotation",
    "container {container} requests {resource}, and its pod template has no annotation {annotation}: pods in the queue "
    "request GPUs by the annotation",
)
NO_CONTAINER: Final = clause("NoContainer", "a container of its pod template is no object")
WRONG_PRIORITY: Final = clause(
    "WrongPriority", "annotation {annotation} is {value}: it must be a whole number from 0 to 255"
)
WRONG_PREEMPTIBLE: Final = clause("WrongPreemptible", "annotation {annotation} is {value}: it must be true or false")
QUEUE_ITS_CLUSTER: Final = clause(
    "QueueItsCluster", "spec.clusterSelector names a cluster that exists already: queue that RayCluster instead"
)
MUST_SHUT_DOWN: Final = clause(
    "MustShutDown", "spec.shutdownAfterJobFinishes must be true: KubeRay suspends no other RayJob"
)
NO_REPLICATED_JOB: Final = clause("NoReplicatedJob", "spec.replicatedJobs must name at least one Job")
AUTOSCALES: Final = clause(
    "AutoscalesInTree", "spec.{path}enableInTreeAutoscaling is true: the queue plans a fixed number of pods"
)
MUST_CLEAN_PODS: Final = clause(
    "MustCleanPods",
    "spec.runPolicy.cleanPodPolicy must be Running or All: else the workers keep their GPUs after the end",
)
NO_ROLE: Final = clause("NoRole", "spec.mpiReplicaSpecs must name at least one role")
NO_JOB_SET: Final = clause(
    "NoJobSet",
    "no JobSet of it has the label {label}: this needs Kubeflow Trainer 2.2 or later, whose log says why it does not "
    "create the JobSet",
)
STARTS_TOGETHER: Final = clause(
    "StartsTogether",
    "{path}.startupPolicy is LeaderReady: the pods of a replica start together in the queue, so it must be "
    "LeaderCreated",
)
GROUP_WITHOUT_LABEL: Final = clause(
    "GroupWithoutLabel",
    "annotation {annotation} is {value}, and label {label} is missing: it names the group that has this size",
)
GROUP_UNNAMED: Final = clause("GroupUnnamed", "label {label} is empty: it names the group that the pod starts with")
GROUP_WITHOUT_SIZE: Final = clause(
    "GroupWithoutSize",
    "label {label} is {value}, and annotation {annotation} is missing: it says how many pods the group has, from 1 to "
    "{most}",
)
WRONG_GROUP_SIZE: Final = clause(
    "WrongGroupSize", "annotation {annotation} is {value}: it must be a whole number from 1 to {most}"
)
GROUP_DISAGREES: Final = clause("GroupDisagrees", "{problem}")
GROUP_INCOMPLETE: Final = clause(
    "GroupIncomplete",
    "group {group} has {pods} of {size} pods: create the others, with label {label} and annotation {annotation}, or "
    "make the size that of all pods",
)
GANG_WITHOUT_POLICY: Final = clause("GangWithoutPolicy", "spec.schedulingPolicy has neither gang.minCount nor basic")
GANG_OF_LEVELS: Final = clause(
    "GangOfLevels", "spec.schedulingConstraints.topology has {count} levels, and the queue keeps to one"
)
GANG_OF_PARTS: Final = clause("GangOfParts", "it has {count} parts that start together, and at most {most} are allowed")
GANG_LEVEL_UNKNOWN: Final = clause(
    "GangLevelUnknown",
    "its pods keep to one value of node label {label}, which is no level of the network here (topology_levels): "
    "{allowed}",
)
GANG_UNNAMED: Final = clause(
    "GangUnnamed",
    "label {label} is missing on a pod of PodClique {clique}: the queue learns the PodGang of a pod when it is created",
)
GANG_PART_LEVEL: Final = clause(
    "GangPartLevel",
    "{part} has the required topology {level} of its own: the queue keeps the whole gang to one level, which is "
    "spec.topologyConstraint",
)
GANG_WITHOUT_ROLES: Final = clause(
    "GangWithoutRoles",
    "its LeaderWorkerSets have no annotation {annotation}: give the DisaggregatedSet the label {label}, and not its "
    "templates alone",
)

# Of an array or a sweep, and of sizes
WRONG_INDEXES: Final = clause("WrongIndexes", "spec.{problem}")
MOST_COMBINATIONS: Final = clause(
    "MostCombinations", "sweep has {count} combinations, and {most} are allowed: make several jobs of it"
)
UNEVEN_VALUES: Final = clause(
    "UnevenValues", "sweep.combine Zip takes the values side by side: each parameter needs as many"
)
SAME_TASK_NAME: Final = clause(
    "SameTaskName",
    "sweep.nameTemplate gives tasks {first} and {second} the same name {name}: name every parameter in it, or begin it "
    "with {index} (a name has {most} of a-z, 0-9 and '-')",
)
UNKNOWN_WORD: Final = clause("UnknownWord", 'sweep.nameTemplate "{template}" names {word}, which is none of {words}')
OWN_VARIABLE: Final = clause(
    "OwnVariable", "sweep parameter {parameter} is a variable that Dovetail sets itself: give it another name"
)
VALUE_NO_TEXT: Final = clause(
    "ValueNoText",
    'sweep: the values of parameter {parameter} are text, and {value} is none: write "{value}", in quotes',
)
SPEC_TOO_LARGE: Final = clause(
    "SpecTooLarge",
    "spec has {size} bytes and may have {most} at most (gpujobs.max_spec_bytes): keep large texts in a ConfigMap and "
    "mount it",
)
TASKS_TOO_LARGE: Final = clause(
    "TasksTooLarge",
    "the specs of {tasks} tasks with {size} bytes each have {total} bytes and may have {most} at most "
    "(gpujobs.max_array_bytes): make the template smaller, or several arrays",
)
METADATA_TOO_LARGE: Final = clause(
    "MetadataTooLarge", "metadata has {size} bytes and may have {most} at most: remove labels or annotations"
)
NESTED_TOO_DEEPLY: Final = clause("NestedTooDeeply", "{field} is nested {depth} levels deep and may be {most} at most")

# Why a request for GPUs is refused: the field and its value, the problem, and an example
REQUEST_FIELD: Final = clause("RequestField", '{field} "{value}": ')
REQUEST_PROBLEM: Final = clause("RequestProblem", "{problem}")
AT_CHARACTER: Final = clause("AtCharacter", " at character {position}")
WRITE_FOR_EXAMPLE: Final = clause("WriteForExample", "; write for example {example}")
ONE_TENANT: Final = clause("OneTenantAtATime", "a MIG instance has one tenant at a time")
NO_SUCH_WORD: Final = clause("NoSuchWord", "unknown {kind}")
WHOLE_EXCLUSIVELY: Final = clause("WholeExclusively", "mode Exclusive takes whole GPUs, not a share")
UNANNOTATED: Final = clause("Unannotated", "it asks for GPUs, but no annotation says what")
NO_SUCH_CONTAINER: Final = clause("NoSuchContainer", "the pod has no container {name}")
WITHOUT_CONTAINER: Final = clause("WithoutContainer", "the pod has no container")
ALL_ANNOTATED: Final = clause("AllAnnotated", "every container has an annotation of its own")
WHICH_CONTAINER: Final = clause(
    "WhichContainer", "the pod has several containers, {names}, and nothing says which one it is for"
)
OTHERS_ASK: Final = clause("OthersAsk", "it uses the devices of a container that asks the same, but these ask {asked}")
NONE_ASKS: Final = clause(
    "NoneAsks", "an init container uses the devices of a container that asks the same, and none does"
)
ONE_MODE: Final = clause("OneMode", "the devices of one pod are in one mode")
AT_MOST: Final = clause("AtMost", "{resource} may be {most} at most")
GPUS_AT_MOST: Final = clause("GPUsAtMost", "the number of GPUs may be {most} at most")
WHOLE_THOUSANDS: Final = clause(
    "WholeThousands", "{resource} above 1000 must be a multiple of 1000 without the annotation {annotation}"
)
NEEDS_EITHER: Final = clause("NeedsEither", "{resource} needs {one} or {other} too")
COUNT_IN_SPEC: Final = clause("CountInSpec", "spec.gpu says how many GPUs a worker gets")
QUEUE_PLACES: Final = clause("QueuePlaces", "the queue decides where a job's pods go")
QUEUE_TIMES: Final = clause("QueueTimes", "the queue decides when a job's pods go")
SHARE_BEYOND: Final = clause("ShareBeyond", "must be from 0.001 to 1, with at most three decimals")
PROFILE_ALONE: Final = clause("ProfileAlone", "a MIG profile goes with count and models alone")
RESOURCES_DIFFER: Final = clause("ResourcesDiffer", "the pod's resources are {found}, but the request needs {wanted}")
GIVES_NONE: Final = clause("GivesNoDevice", "it asks {resource}: {amount}, which gives it no device")
ONE_KIND: Final = clause("OneKind", "a pod's GPUs are of one kind")
ONE_KIND_ASKED: Final = clause("OneKindAsked", "a pod's GPUs are of one kind, and its containers ask {resource}")
CONTAINERS_ASK: Final = clause("ContainersAsk", "the pod's containers ask {resource}: {count}")
OTHER_VENDOR: Final = clause("OtherVendor", "the pod's containers ask {resource}, which is not {vendor}'s")
PLUGIN_GIVES_WHOLE: Final = clause(
    "PluginGivesWhole", "a vendor's plugin gives whole GPUs as it likes: no shares, turns or cuda:N"
)
NEEDS_MANAGED: Final = clause(
    "NeedsManaged",
    "{feature} needs a node that Dovetail manages, and those are NVIDIA's: a vendor's plugin gives whole GPUs",
)
NO_NODE_HAS: Final = clause("NoNodeHas", "no node of Dovetail has this: the pod would wait for ever")
HAMI_PRIORITY: Final = clause("HAMiPriority", "is HAMi's, and Dovetail has no such order of the tenants of a device")
BOTH_SAY_MEMORY: Final = clause("BothSayMemory", "{one} and {other} both say the memory")
PERCENT_BEYOND: Final = clause("PercentBeyond", "{resource} is a percentage, 100 at most")
WHOLE_AT_MOST: Final = clause("WholeAtMost", "must be a whole number, {most} at most")
WHOLE_GPUS_AT_MOST: Final = clause("WholeGPUsAtMost", "must be a whole number of GPUs, {most} at most")
NOT_BY_UUID: Final = clause(
    "NotByUUID", "Dovetail knows devices by their node and index, and no request names them by UUID"
)
NAMES_PROFILE: Final = clause("NamesProfile", "a request for MIG instances names their profile")
BOTH_SAY_SHARE: Final = clause("BothSayShare", "both say how much of a GPU")
MUST_BE: Final = clause("MustBe", "must be {value}")
FROM_TO: Final = clause("FromTo", "must be from {low} to {high}")
WHOLE_FROM_TO: Final = clause("WholeFromTo", "must be a whole number from {low} to {high}")
MIB_ABOVE_ZERO: Final = clause("MiBAboveZero", "must be a whole number of MiB above 0")
OF_NAMESPACE: Final = clause("OfNamespace", " in namespace {namespace}")
COMPUTE_OF_ALL: Final = clause("ComputeOfAll", "the containers of a pod limit their compute, or none of them does")
NO_LEVEL: Final = clause("NoSuchLevel", "no such level is configured (topology_levels): {levels}{hint}")
NARROWER: Final = clause("Narrower", "must be narrower than required, which is {required}")
ONE_QUEUED_CONTAINER: Final = clause("OneQueuedContainer", "a pod in the queue has its GPUs in one container")
NAME_TOO_LONG: Final = clause(
    "NameTooLong", "has more than {most} characters, too many for the annotation with its GPUs"
)
NOT_NEGATIVE: Final = clause("NotNegative", "must be 0 or more")
IS_NO_QUANTITY: Final = clause("IsNoQuantity", "is no quantity")
NO_QUANTITY: Final = clause("NoQuantity", "no quantity")
TERM_TWICE: Final = clause("TermTwice", "has {term} twice")
TERMS_ARE: Final = clause("TermsAre", "the terms are {terms}")
WEIGHT_BEYOND: Final = clause(
    "WeightBeyond", "{term} must be a number from 0 to {most}, with at most {decimals} decimals"
)
NODES_AT_MOST: Final = clause("NodesAtMost", "must be names of nodes, at most {most}, separated by commas")
PACK_ALONE: Final = clause("PackAlone", "policy Pack uses the fragmentation term alone")
WITH_OTHERS: Final = clause("WithOthers", "with those that it leaves out")
ALL_ZERO: Final = clause("AllZero", ", all weights are 0; one must be above 0")
POD_UNREADABLE: Final = clause("PodUnreadable", "cannot be read: {problem}")
NO_OPTION: Final = clause("NoOption", "is none that a pod with GPUs has ({names})")
PLACED_ALREADY: Final = clause("PlacedAlready", "a pod gets its GPUs when it is scheduled, and this one would not be")
OUR_SCHEDULER: Final = clause("OurScheduler", "a pod with GPUs of Dovetail is scheduled by dovetail")
OUR_RUNTIME: Final = clause("OurRuntime", "a pod with GPUs of Dovetail runs in the class nvidia")
