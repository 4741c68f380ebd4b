"""Why the gateway refuses a request, or cannot answer it: the sentences of REST's problems."""

from typing import Final

from dovetail.api.reasons.clause import clause

# The request itself
SAID_BY_API_SERVER: Final = clause("SaidByAPIServer", "{message}")
API_SERVER_AWAY: Final = clause("APIServerAway", "the API server does not answer as expected: {problem}")
GATEWAY_FAILED: Final = clause("GatewayFailed", "the gateway failed; its log has the cause")
NO_ANSWER_IN_TIME: Final = clause("NoAnswerInTime", "no answer within {seconds} s")
NOT_READY: Final = clause("NotReady", "not ready: {obstacle}")
WRONG_HOST: Final = clause("WrongHost", "the Host header names no host of this gateway: see --allowed-host")
NO_SUCH_PATH: Final = clause("NoSuchPath", "no such path: /openapi.json lists all of them")
OTHER_METHODS: Final = clause("OtherMethods", "the path has other methods: see Allow")
NO_HTTP: Final = clause("NoHTTP", "{problem}")
WRONG_CONTENT_TYPE: Final = clause(
    "WrongContentType", "the body's Content-Type is {content_type}; send application/json"
)
WRONG_HEADER: Final = clause("WrongHeader", 'header {header} "{value}": it must match {pattern}')
PARAMETER_TWICE: Final = clause("ParameterTwice", "the query has '{parameter}' more than once")
PARAMETER_NULL: Final = clause("ParameterNull", "{parameter} is null: leave the parameter out instead")
REQUEST_UNREADABLE: Final = clause("RequestUnreadable", "the request cannot be read: {problem}")
BODY_LATE: Final = clause(
    "BodyLate", "the body did not come in time: it has {seconds} s, and less while there are many"
)
BODY_TOO_LARGE: Final = clause("BodyTooLarge", "the body is above {most_bytes} bytes")
VALUE_REFUSED: Final = clause("ValueRefused", "{problem}")
WRONG_TIME: Final = clause("WrongTime", '{field} "{value}": {problem}; write for example 2026-01-31T18:00:00Z')
NOT_BEFORE: Final = clause("NotBeforeUntil", 'since "{since}": must be before until, which is {until}')
AFTER_NOW: Final = clause("AfterNow", 'at "{at}": must not be after now, which is {now}')
NOT_A_DAY_BEFORE: Final = clause("NotADayBeforeUntil", 'since "{since}": must be a day before until, which is {until}')

# Who asks, and how often
NO_TOKEN: Final = clause("NoToken", "send a token: Authorization: Bearer TOKEN (kubectl create token NAME gives one)")
NO_BEARER: Final = clause("NoBearer", "the header Authorization must be `Bearer TOKEN`")
NO_BEARER_TOKEN: Final = clause("NoBearerToken", "this is no bearer token: `kubectl create token NAME` prints one")
TOKEN_EXPIRED: Final = clause("TokenExpired", "the token has expired")
TOKEN_NOT_ACCEPTED: Final = clause("TokenNotAccepted", "the API server does not accept the token: it may have expired")
OWN_USER_ALONE: Final = clause("OwnUserAlone", "without a token, this gateway serves the user alone who has started it")
OTHER_SITE: Final = clause("OtherSite", "a page of another site sent the request: send a token")
OTHER_PAGE: Final = clause("OtherPage", "the request does not come from a page of this gateway")
NEEDS_CONSOLE_HEADER: Final = clause(
    "NeedsConsoleHeader", "a request with a session that changes something needs the header {header}"
)
MAY_NOT: Final = clause("MayNot", "you may not {verb} {resource}")
IN_NAMESPACE: Final = clause("InNamespace", " in namespace {namespace}")
IN_NO_NAMESPACE: Final = clause("InNoNamespace", " in any namespace that has been reviewed: try ?namespace=NAME")
TOO_MANY_REQUESTS: Final = clause("TooManyRequests", "too many requests")
TOO_MANY_CONNECTIONS: Final = clause("TooManyConnections", "too many connections of {user}")
TOO_MANY_STREAMS: Final = clause("TooManyStreams", "{count} streams of {user} are open: close one")
TOO_MANY_WAIT: Final = clause("TooManyWait", "{count} requests of {user} wait for their turn already")
TOO_MANY_OF_CALLER: Final = clause("TooManyOfCallerWait", "{count} requests of this caller wait for their turn already")
REVIEWED_TOO_OFTEN: Final = clause("ReviewedTooOften", "the rights of {user} were reviewed too often")
AGAIN_IN: Final = clause("AgainIn", ": try again in {seconds} s")

# The console's doors
NOT_BUILT: Final = clause(
    "ConsoleNotBuilt", "the console is not built here: `make console` or `dovetail console` builds it"
)
NO_SUCH_FILE: Final = clause("NoSuchFile", "the console has no such file")
CODE_OR_TOKEN: Final = clause("CodeOrToken", "send either code or token")
CODE_NOT_VALID: Final = clause(
    "CodeNotValid",
    "this code was used already, is too old, or is of another browser: `dovetail console` shows a new one",
)
SIGNED_IN_ALREADY: Final = clause(
    "SignedInAlready", "you are signed in as {user}, and a code ends no session by itself: sign out first"
)
OTHER_ADDRESS: Final = clause("OtherAddress", "the provider sends browsers to {url}: open the console there to sign in")
NEEDS_HTTPS: Final = clause("NeedsHTTPS", "signing in needs https, except on this machine")
CODES_UNUSED: Final = clause("CodesUnused", "{user} has {count} codes that were not used yet")
SESSIONS_OF_ADDRESS: Final = clause(
    "SessionsOfAddress", "the address {address} has {count} sessions, as many as one address can have"
)
SESSIONS_IN_ALL: Final = clause("SessionsInAll", "the gateway has {count} sessions, as many as it can have")
CODES_OF_ADDRESS: Final = clause(
    "CodesOfAddress", "the address {address} has {count} codes, as many as one address can have"
)
CODES_IN_ALL: Final = clause("CodesInAll", "the gateway has {count} codes, as many as it can have")

# Signing in at an OpenID provider
ID_TOKEN_NOT_ACCEPTED: Final = clause(
    "IDTokenNotAccepted",
    "the API server does not accept the ID token of {issuer}: its AuthenticationConfiguration must have this issuer "
    'with the audience "{client}"',
)
SIGN_IN_REFUSED: Final = clause("SignInRefused", "the provider refuses the sign-in: {problem}")
SIGN_IN_WITHOUT_CODE: Final = clause("SignInWithoutCode", "the provider refuses the sign-in: it sent no code")
SIGN_IN_ELSEWHERE: Final = clause(
    "SignInElsewhere", "this sign-in did not begin in this browser, or is finished already: sign in again"
)
SIGN_IN_TOO_LONG: Final = clause("SignInTooLong", "the sign-in took longer than {minutes} minutes: sign in again")
CLIENT_NOT_ACCEPTED: Final = clause(
    "ClientNotAccepted",
    'the provider does not accept this gateway as its client "{client}" ({problem}): compare client id and secret',
)
PROVIDER_STATUS: Final = clause("ProviderStatus", "the provider {issuer} answers with status {status}: try again later")
PROVIDER_SILENT: Final = clause("ProviderSilent", "the provider {issuer} does not answer: {problem}")
PROVIDER_TOO_LATE: Final = clause(
    "ProviderTooLate", "the provider {issuer} does not answer: no answer within {seconds} s"
)
NO_ID_TOKEN: Final = clause("NoIDToken", "the provider {issuer} gave no ID token: the scopes must include openid")
URL_STATUS: Final = clause("URLStatus", "{url} answers with status {status}: compare the issuer's address")
URL_OTHER_ISSUER: Final = clause("URLOtherIssuer", '{url} is of the issuer "{issuer}": configure exactly this one')
URL_PLAIN_ENDPOINT: Final = clause("URLPlainEndpoint", '{url} names "{endpoint}": endpoints must begin with https://')
ANSWER_TOO_LARGE: Final = clause("AnswerTooLarge", "the answer of {url} is larger than {most_mib} MiB")
ANSWER_UNREADABLE: Final = clause("AnswerUnreadable", "the answer of {url} cannot be read: {problem}")
ID_TOKEN_OTHER_ISSUER: Final = clause(
    "IDTokenOtherIssuer", 'the ID token is of the issuer "{issuer}", and this gateway trusts "{trusted}"'
)
ID_TOKEN_OTHER_CLIENT: Final = clause(
    "IDTokenOtherClient", 'the ID token is for {audiences}, and this gateway is the client "{client}"'
)
ID_TOKEN_OTHER_SIGN_IN: Final = clause("IDTokenOtherSignIn", "the ID token answers another sign-in: its nonce differs")
ID_TOKEN_OTHER_USER: Final = clause("IDTokenOtherUser", "the renewed ID token is of another user")
ID_TOKEN_EXPIRED: Final = clause(
    "IDTokenExpired",
    "the ID token expired {seconds} s ago: compare the clocks of the provider and of the gateway",
)
ID_TOKEN_EARLY: Final = clause(
    "IDTokenEarly",
    "the ID token is valid only in {seconds} s: compare the clocks of the provider and of the gateway",
)
ID_TOKEN_UNREADABLE: Final = clause("IDTokenUnreadable", "the provider's ID token cannot be read: {problem}")
ID_TOKEN_NO_JWT: Final = clause("IDTokenNoJWT", "the provider's ID token cannot be read: it is no JWT")
ID_TOKEN_NO_BASE64: Final = clause("IDTokenNoBase64", "the provider's ID token cannot be read: it is not Base64")

# Objects
NO_JOB: Final = clause("NoSuchGPUJob", "there is no GPUJob {job} in namespace {namespace} that you may list")
KEEPS_REQUEST: Final = clause("KeepsRequest", "GPUJob {job} keeps its request: ")
NO_SUCH_NODE: Final = clause("NoSuchNode", "there is no node {node}")
NO_NODE_WITH_GPUS: Final = clause("NoNodeWithGPUs", "there is no node {node} with GPUs")
NO_QUOTA: Final = clause("NoSuchQuota", "there is no GPUQuota {quota} that applies to a namespace you may list")
QUOTA_WRITTEN_OFTEN: Final = clause(
    "QuotaWrittenOften", "GPUQuota {quota} is written too often at the moment: try again"
)
QUOTA_HAS_CHANGED: Final = clause(
    "QuotaHasChanged",
    "GPUQuota {quota} has changed since you read it (generation {now}, not {read}): read it again",
)
NO_TASK: Final = clause("NoSuchTask", "there is no task {task} that you may list")
NO_SAMPLES_OF_NODE: Final = clause("NoSamplesOfNode", "there are no samples of the node {name}")
NO_SAMPLES_OF_MODEL: Final = clause("NoSamplesOfModel", "there are no samples of the model {name}")
PROMETHEUS_HAS_NO_SAMPLES: Final = clause("PrometheusHasNoSamples", "Prometheus has no samples of {name}")
NO_SAMPLES_OF_NAMESPACE: Final = clause("NoSamplesOfNamespace", "there are no samples of the namespace {name}")
NO_SAMPLES_OF_PROJECT: Final = clause("NoSamplesOfProject", "there are no samples of the project {name}")
NO_SAMPLES_OF_JOB: Final = clause(
    "NoSamplesOfJob", "there are no samples of a job {job} in namespace {namespace} that you may list"
)
SERIES_NEEDS_NAME: Final = clause("SeriesNeedsName", "name is missing: of={of} is asked of one {subject}")
SERIES_NEEDS_NAMESPACE: Final = clause(
    "SeriesNeedsNamespace", "namespace is missing: of=Job is asked of one job, so add namespace=NAMESPACE"
)
ANOTHER_CREATED: Final = clause(
    "AnotherCreatedIt",
    "another request created GPUJob {namespace}/{job}: use another Idempotency-Key or name",
)
SPEC_UNREADABLE: Final = clause("SpecUnreadable", "spec cannot be read: {problem}")
SPEC_NO_OBJECT: Final = clause("SpecNoObject", "spec must be an object: {problem}")
SPEC_UNUSABLE: Final = clause("SpecUnusable", "spec cannot be used: {problem}")
IMAGE_MISSING: Final = clause(
    "ImageMissing", "{field} is missing: name the image that the container runs, such as pytorch/pytorch"
)
SINCE_SNAPSHOT: Final = clause("SinceNoSnapshot", 'since "{value}": write EPOCH:SEQ of a snapshot')
HISTORY_UNANSWERED: Final = clause(
    "HistoryUnanswered",
    "no operator has answered within {seconds} s what ran here: is dovetail-operator running?",
)
NO_HISTORY: Final = clause(
    "NoHistory",
    "no history of jobs is kept here: an administrator can switch it on (history.enabled of the chart, or history_url)",
)
HISTORY_PHASE: Final = clause("HistoryPhase", 'phases "{phase}": a job that has ended is one of {allowed}')
HISTORY_AFTER: Final = clause("HistoryAfter", 'after "{after}": give what the answer before said in `next`')
HISTORY_REFUSES: Final = clause("HistoryRefuses", "{message}")

# Logs
NO_SUCH_WORKER: Final = clause("NoSuchWorker", "worker={worker}: this job has {workers}, counted from 0")
NO_KUBELET: Final = clause("NoKubelet", "node {node} has no kubelet that could be asked: simulated nodes keep no logs")
LOG_OF_TASKS: Final = clause("LogOfTasks", "job {job} is many tasks, and each is a job with a log of its own")
LOG_GONE: Final = clause("LogGone", "job {job} has ended and its workers are gone")
NO_LOG_YET: Final = clause("NoLogYet", "job {job} has no worker now, and so no log: {phase}")
BECAUSE: Final = clause("Because", " ({reason}: {message})")

# REST v1 and v2
NO_ALLOCATION: Final = clause(
    "NoAllocation", "{name} is a job and no allocation: DELETE /api/v3/jobs/{namespace}/{name} deletes it"
)
NODES_BEYOND: Final = clause(
    "NodesBeyond", "gpu_count {count}: {workers} nodes with {each} GPUs each, allowed are {most}"
)
DEVICE_UNNUMBERED: Final = clause(
    "DeviceUnnumbered", "device {device} has no number yet: {count} GPUs of this cluster wait for the operator"
)
NO_SUCH_DEVICE: Final = clause("NoSuchDevice", "device {device} does not exist: ")
CLUSTER_WITHOUT_GPUS: Final = clause("ClusterWithoutGPUs", "this cluster has no GPUs")
CLUSTER_HAS_GPUS: Final = clause("ClusterHasGPUs", "this cluster has {count:GPU|GPUs} ({devices})")
WRONG_DEVICE: Final = clause("WrongDevice", 'device "{device}": allowed are cuda, cuda:N, NODE/cuda:N and cpu')
TENANTS_BEYOND: Final = clause(
    "TenantsBeyond", "max_concurrent of {device}: {workload} is {value}, allowed are 0 to {most}"
)
TEMPLATES_UNREADABLE: Final = clause("TemplatesUnreadable", "{problem}")
NO_TEMPLATE: Final = clause(
    "NoTaskTemplate",
    "nothing says what {kind} tasks run. On your own machine: gflowd up {line}. "
    "On a cluster: dovetail migrate v2 {line} --image IMAGE",
)
FIELD_MISSING: Final = clause("FieldMissing", "field {field} is missing: the command of {kind} tasks uses it")
FIELD_NAME: Final = clause("FieldName", 'field "{field}": a name has letters, digits, "_", "." and "-", 63 at most')
FIELD_TOO_LONG: Final = clause("FieldTooLong", "{field}: {characters} characters, allowed are {most} without NUL")

# Right sizes: why a job keeps its request, and what the answer rests on
SIZE_OF_CONTROLLER: Final = clause("SizeOfController", "its own controller makes its pods, so request less there")
SIZE_OF_KUEUE: Final = clause("SizeOfKueue", "Kueue admits it by the request that it has")
SIZE_UNMEASURED: Final = clause("SizeUnmeasured", "nothing was measured of it on a device")
NO_SMALLER_SIZE: Final = clause("NoSmallerSize", "no smaller one follows from what it used: ")
SIZE_EXCLUSIVE: Final = clause("SizeExclusive", "Mode Exclusive takes its devices whole")
SIZE_OF_PLUGIN: Final = clause("SizeOfPlugin", "A vendor's plugin gives its devices whole")
SIZE_LIMITED: Final = clause("SizeLimited", "It used all the memory that it was promised, so it may need more")
SIZE_WITHOUT_MEMORY: Final = clause("SizeWithoutMemory", "No memory use of its own was measured on its devices")
SIZE_TOO_SOON: Final = clause("SizeTooSoon", "Measured for {measured} of device time; a right size needs {needed}")
SIZE_MEASURED: Final = clause(
    "SizeMeasured",
    "Peak {peak_mib} MiB of {promised_mib} MiB on a device in {runs:run|runs} of {name}; "
    "mean utilization {utilization} over {measured} of device time",
)
