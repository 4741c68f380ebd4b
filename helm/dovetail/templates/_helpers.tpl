{{/* Labels of every object. Call with (dict "root" $ "component" "operator"); the component is optional. */}}
{{- define "dovetail.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "dovetail.selector" . }}
{{- end }}

{{/* Labels that select the pods of one component; immutable once installed. */}}
{{- define "dovetail.selector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* Image of one of Dovetail's deployables. Call with (dict "root" $ "name" "operator"). */}}
{{- define "dovetail.image" -}}
{{- include "dovetail.refuseNoRegistry" .root -}}
{{- $repository := printf "%s/%s" .root.Values.image.registry .name -}}
{{- include "dovetail.imageByDigest" (dict "root" .root "name" .name "repository" $repository
  "digest" (index .root.Values .name).image.digest "tag" .root.Values.image.tag) -}}
{{- end }}

{{/* No registry serves Dovetail's images to every cluster, so the installer says where they are. */}}
{{- define "dovetail.refuseNoRegistry" -}}
{{- if not .Values.image.registry -}}
{{- fail (join "\n" (list
  "image.registry is empty, and must say where the images are. Build them, and import them on each node:"
  "  images/build.sh"
  "  ctr -n k8s.io images import ARCHIVE        # each archive that it prints"
  "  helm … --set image.registry=dovetail.local"
  "Or name a registry that has them, and their tag:"
  "  helm … --set image.registry=REGISTRY/dovetail --set image.tag=TAG")) -}}
{{- end -}}
{{- end }}

{{/* An image by its digest, otherwise by its tag, if that is allowed. Call with root, name, repository, digest, tag. */}}
{{- define "dovetail.imageByDigest" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else if .root.Values.image.requireDigests }}
{{- fail (printf "%s.image.digest is empty: image.requireDigests asks for the sha256:… of %s:%s" .name .repository .tag) }}
{{- else }}{{ .repository }}:{{ .tag }}
{{- end }}
{{- end }}

{{/* The security context of every pod: no privileges, as Pod Security `restricted` requires. */}}
{{- define "dovetail.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "dovetail.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The security context of the agent's container: all capabilities dropped; user 0 only where a path of the host belongs to root. */}}
{{- define "dovetail.agentSecurity" -}}
{{- $values := .root.Values.agent -}}
{{- $kills := and .perNode (eq (dig "memory_overuse" "Warn" .root.Values.config) "Kill") -}}
{{- $root := or $kills (and .perNode (or $values.podResources.enabled $values.turns.enabled $values.reshape.enabled)) -}}
{{- $reshapes := and .perNode $values.reshape.enabled -}}
{{- /* The driver lets a process that may trace another one move it. To end another user's process, KILL is needed. */ -}}
{{- $more := concat (ternary (list "SYS_PTRACE") list (and .perNode $values.checkpoint.enabled)) (ternary (list "KILL") list $kills) (ternary (list "SYS_ADMIN") list $reshapes) -}}
securityContext:
  # A container with SYS_ADMIN could not be started without it.
  allowPrivilegeEscalation: {{ $reshapes }}
  readOnlyRootFilesystem: true
  {{- if $root }}
  runAsNonRoot: false
  runAsUser: 0
  runAsGroup: 0
  {{- else }}
  runAsNonRoot: true
  {{- end }}
  capabilities:
    drop: [ALL]
    {{- with $more }}
    add: {{ toJson . }}
    {{- end }}
{{- end }}

{{/* Where a pod may run. Call with the values of its component. */}}
{{- define "dovetail.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where /livez, /readyz and /metrics are: on all of the pod's addresses, or with `loopback` on 127.0.0.1 over mutual TLS. */}}
{{- define "dovetail.metricsOptions" -}}
- --metrics-port={{ .port }}
{{- with .root.Values.loopback.certificates }}
- --metrics-host=127.0.0.1
- --metrics-certificates={{ . }}
{{- end }}
{{- end }}

{{- define "dovetail.metricsScheme" -}}
{{- ternary "HTTPS" "HTTP" (not (empty .Values.loopback.certificates)) -}}
{{- end }}

{{/* Probes over HTTP at a named port. The start may take as long as the first lists of a large cluster. */}}
{{- define "dovetail.probes" -}}
{{- $scheme := include "dovetail.metricsScheme" .root -}}
startupProbe:
  httpGet: {path: /livez, port: {{ .port }}, scheme: {{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* gpu_config.yaml: one file for all, so that operator, extender and agent agree. */}}
{{- /* Every account of the cluster may read the ConfigMap. The same check as dovetail.config.credentials, which refuses the file too. */ -}}
{{- define "dovetail.refuseCredentials" -}}
{{- $why := "every account of the cluster may read the ConfigMap dovetail-config: put the URL into a Secret of the release's namespace, key url, and name that in" -}}
{{- range $key, $secret := dict "history_url" "history.secretName" "samples_url" "history.secretName" "notify_url" "notify.secretName" -}}
{{- $url := dig $key "" $.Values.config | toString -}}
{{- $query := regexReplaceAll "^[^?]*" $url "" -}}
{{- if regexMatch "://[^@]*:[^@]*@" $url -}}
{{- fail (printf "config.%s has a password before its host, and %s %s" $key $why $secret) -}}
{{- else if regexMatch "(?i)pass(word|wd|phrase)|secret|token" $query -}}
{{- fail (printf "config.%s has a password in its query, and %s %s" $key $why $secret) -}}
{{- else if and (regexMatch "(?i)^https?://" $url) (not (regexMatch "(?i)^https?://[^/?#@]+/?$" $url)) -}}
{{- fail (printf "config.%s has a path, which is what authorizes the caller of a webhook, and %s %s" $key $why $secret) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What a schema cannot say of the configuration. The programs refuse it too, but after the installation. */}}
{{- define "dovetail.refuseContradictions" -}}
{{- $bind := int (dig "bind_deadline_seconds" 4 .Values.config) -}}
{{- $hold := int (dig "hold_ttl_seconds" 30 .Values.config) -}}
{{- if ge $bind $hold -}}
{{- fail (printf "config.bind_deadline_seconds is %d, but must be below config.hold_ttl_seconds, which is %d" $bind $hold) -}}
{{- end -}}
{{- $levels := dig "topology_levels" list .Values.config -}}
{{- $known := list (dict) (dict) -}}
{{- range $at, $level := $levels -}}
{{- range $part, $name := splitList "=" $level -}}
{{- $others := index $known $part -}}
{{- if hasKey $others $name -}}
{{- fail (printf "config.topology_levels[%d] is %s, but each name and each label is allowed once, and config.topology_levels[%d] has %s" $at $level (get $others $name) $name) -}}
{{- end -}}
{{- $_ := set $others $name $at -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "dovetail.config" -}}
{{- include "dovetail.refuseCredentials" . -}}
{{- include "dovetail.refuseContradictions" . -}}
{{- $config := .Values.config -}}
{{- $exempt := concat (include "dovetail.exemptNamespaces" . | fromYamlArray) (dig "exempt_namespaces" list $config) | uniq -}}
{{- $config = merge (dict "exempt_namespaces" $exempt "agents_read_pods" .Values.agent.readPods) $config -}}
{{- if .Values.mps.enabled -}}
{{- $config = merge (dict "mps_directory" .Values.mps.directory) $config -}}
{{- end -}}
{{- toYaml $config }}
{{- end }}

{{- define "dovetail.configVolume" -}}
- name: config
  configMap: {name: dovetail-config}
{{- end }}

{{- define "dovetail.configMount" -}}
- {name: config, mountPath: /etc/dovetail, readOnly: true}
{{- end }}

{{/* The agent's container, the same in both forms. Call with (dict "root" $ "args" (list …)). */}}
{{- define "dovetail.agentContainer" -}}
- name: agent
  image: {{ include "dovetail.image" (dict "root" .root "name" "agent") }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [dovetail-agent]
  args:
    - --config=/etc/dovetail/gpu_config.yaml
    - --provider={{ ternary .root.Values.agent.provider "simulated" .perNode }}
    {{- include "dovetail.metricsOptions" (dict "root" .root "port" .root.Values.agent.metricsPort) | nindent 4 }}
    {{- if .perNode }}
    - --node=$(NODE_NAME)
    {{- if .root.Values.agent.podResources.enabled }}
    - --pod-resources=/kubelet/pod-resources/kubelet.sock
    {{- end }}
    {{- if .root.Values.mps.enabled }}
    - --mps-state=/mps/mps.json
    {{- end }}
    {{- if .root.Values.agent.turns.enabled }}
    - --turns=/turns
    - --cgroups=/cgroup
    {{- end }}
    {{- if .root.Values.agent.checkpoint.enabled }}
    - --suspend-to-host
    {{- end }}
    {{- end }}
    {{- if or .root.Values.agent.reshape.enabled (not .perNode) }}
    - --reshape
    {{- end }}
    {{- if .perNode }}
  env:
    - name: NODE_NAME
      valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
    {{- if ne .root.Values.agent.provider "simulated" }}
    # All devices, and the driver's management library; only the compute part can move memory.
    - {name: NVIDIA_VISIBLE_DEVICES, value: all}
    - {name: NVIDIA_DRIVER_CAPABILITIES, value: "{{ if .root.Values.agent.checkpoint.enabled }}compute,{{ end }}utility"}
    {{- if .root.Values.agent.reshape.enabled }}
    - {name: NVIDIA_MIG_CONFIG_DEVICES, value: all}
    {{- end }}
    {{- end }}
    {{- end }}
  ports:
    - {name: metrics, containerPort: {{ .root.Values.agent.metricsPort }}}
  {{- include "dovetail.probes" (dict "root" .root "port" "metrics") | nindent 2 }}
  resources: {{- toYaml (ternary .root.Values.agent.resources .root.Values.simulation.resources .perNode) | nindent 4 }}
  {{- include "dovetail.agentSecurity" . | nindent 2 }}
  volumeMounts:
    {{- include "dovetail.configMount" . | nindent 4 }}
    {{- if and .perNode .root.Values.agent.podResources.enabled }}
    # The folder and not the socket in it, because kubelet creates the socket again whenever it starts.
    - {name: pod-resources, mountPath: /kubelet/pod-resources, readOnly: true}
    {{- end }}
    {{- if and .perNode .root.Values.mps.enabled }}
    - {name: mps-state, mountPath: /mps, readOnly: true}
    {{- end }}
    {{- if and .perNode .root.Values.agent.turns.enabled }}
    {{- include "dovetail.turnsMounts" . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* What turns need on a node: the cgroups of pods, and the folder in which agent and watchdog record frozen pods. */}}
{{- define "dovetail.turnsMounts" -}}
- {name: cgroups, mountPath: /cgroup}
- {name: turns, mountPath: /turns}
{{- end }}

{{- define "dovetail.turnsVolumes" -}}
- name: cgroups
  hostPath: {path: {{ .Values.agent.turns.cgroups }}, type: Directory}
- name: turns
  hostPath: {path: {{ .Values.agent.turns.directory }}, type: DirectoryOrCreate}
{{- end }}

{{/* kube-scheduler's configuration: Dovetail's profile, and the extender for pods that request Dovetail's resources. */}}
{{- define "dovetail.schedulerConfig" -}}
{{- $bind := int (dig "bind_deadline_seconds" 4 .Values.config) -}}
{{- $timeout := int .Values.extender.timeoutSeconds -}}
{{- if le $timeout $bind -}}
{{- fail (printf "extender.timeoutSeconds is %d, but must be above config.bind_deadline_seconds, which is %d" $timeout $bind) -}}
{{- end -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{- if .Values.attach.enabled }}
{{- with .Values.scheduler.kubeconfig }}
clientConnection:
  kubeconfig: {{ . | quote }}
{{- end }}
{{- else }}
clientConnection:
  {{- with .Values.scheduler.kubeconfig }}
  kubeconfig: {{ . | quote }}
  {{- end }}
  qps: {{ .Values.scheduler.qps }}
  burst: {{ .Values.scheduler.burst }}
# Leader election; the lease also stops a former leader that does not know yet that it was replaced, and shows
# that a scheduler runs. The times are client-go's defaults: with 6, 4 and 1 s, a busy API server cost the scheduler its
# lease two or three times in ten minutes (load 14 on two cores), each time with 3 to 15 s without a bind.
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: dovetail-scheduler
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
# An attempt while the extender is down is an error: the first and the longest delay before it is repeated.
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
{{- end }}
profiles:
  - schedulerName: dovetail
    # By default kube-scheduler samples a large cluster, and the extender would refuse pods that other nodes could take.
    percentageOfNodesToScore: 100
  {{- if .Values.attach.enabled }}
  # The profile of all other pods, as it was.
  - schedulerName: default-scheduler
  {{- end }}
extenders:
  {{- if .Values.attach.enabled }}
  - urlPrefix: {{ .Values.attach.url | default (printf "https://%s:%d" (include "dovetail.extenderName" .) (int .Values.attach.port)) }}
    enableHTTPS: true
    tlsConfig:
      serverName: {{ include "dovetail.extenderName" . }}
      caFile: {{ .Values.attach.clientFolder }}/ca.crt
      certFile: {{ .Values.attach.clientFolder }}/tls.crt
      keyFile: {{ .Values.attach.clientFolder }}/tls.key
  {{- else if .Values.loopback.certificates }}
  - urlPrefix: https://127.0.0.1:{{ .Values.extender.port }}
    enableHTTPS: true
    tlsConfig:
      {{- range $file, $name := dict "caFile" "ca.crt" "certFile" "tls.crt" "keyFile" "tls.key" }}
      {{ $file }}: {{ printf "%s/%s" $.Values.loopback.certificates $name | quote }}
      {{- end }}
  {{- else }}
  - urlPrefix: http://127.0.0.1:{{ .Values.extender.port }}
  {{- end }}
    filterVerb: filter
    prioritizeVerb: prioritize
    # kube-scheduler would choose victims by sums; the extender chooses them by device.
    preemptVerb: preempt
    bindVerb: bind
    # The scale is in the scores.
    weight: 1
    httpTimeout: {{ .Values.extender.timeoutSeconds }}s
    # The extender has its own cache and needs only names.
    nodeCacheCapable: true
    # A GPU pod without promised devices must not be bound.
    ignorable: false
    # Other pods never come here. kube-scheduler also counts the sums, and refuses what cannot fit.
    managedResources:
      - {name: dovetail.dev/gpu-milli, ignoredByScheduler: false}
      - {name: dovetail.dev/gpu-memory-mib, ignoredByScheduler: false}
      - {name: dovetail.dev/gpu-turn, ignoredByScheduler: false}
      # Whole devices that a vendor's plugin hands out: the extender chooses the node, kubelet the device.
      {{- range include "dovetail.vendorResources" . | fromJsonArray }}
      - {name: {{ . }}, ignoredByScheduler: false}
      {{- end }}
{{- end }}

{{/* The name by which kube-scheduler verifies an attached extender. */}}
{{- define "dovetail.extenderName" -}}
dovetail-extender.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The resources of vendors' device plugins: those that every installation knows, and the configured ones. */}}
{{- define "dovetail.vendorResources" -}}
{{- $known := dict "nvidia" "nvidia.com/gpu" "amd" "amd.com/gpu" "intel" "gpu.intel.com/i915" "npu" "huawei.com/npu" -}}
{{- merge (dict) (dig "gpu_resource" dict .Values.config) $known | values | uniq | sortAlpha | toJson -}}
{{- end }}

{{/* The address at which the API server reaches the webhook. dovetail-trust writes the trusted CA (`caBundle`). */}}
{{- define "dovetail.webhookClient" -}}
{{- include "dovetail.webhookAt" (dict "root" . "path" "/mutate") -}}
{{- end }}
{{- define "dovetail.webhookAt" -}}
{{- if .root.Values.webhook.url -}}
url: {{ .root.Values.webhook.url }}{{ .path }}
{{- else -}}
service: {name: dovetail-webhook, namespace: {{ .root.Release.Namespace }}, port: 443, path: {{ .path }}}
{{- end }}
{{- end }}

{{/* The host of the webhook's URL if it is an IP address; empty if it is a name, or if there is none. */}}
{{- define "dovetail.webhookAddress" -}}
{{- with .Values.webhook.url -}}
{{- $host := trimSuffix "]" (trimPrefix "[" (urlParse .).hostname) -}}
{{- if or (contains ":" $host) (regexMatch "^[0-9]+([.][0-9]+){3}$" $host) -}}{{ $host }}{{- end -}}
{{- end -}}
{{- end }}

{{/* The names by which API servers reach the webhook, as JSON. */}}
{{- define "dovetail.webhookNames" -}}
{{- $names := list (printf "dovetail-webhook.%s.svc" .Release.Namespace) -}}
{{- with .Values.webhook.url }}{{ $names = append $names (trimSuffix "]" (trimPrefix "[" (urlParse .).hostname)) }}{{ end -}}
{{- toJson $names -}}
{{- end }}

{{/* TCP ports of the operator's database and of the server for notifications, as JSON. For an address in a
     Secret, all usual ports. */}}
{{- define "dovetail.operatorPorts" -}}
{{- $known := dict "postgresql" (list 5432) "smtp" (list 25) "smtps" (list 465) "http" (list 80) "https" (list 443) -}}
{{- $ports := list -}}
{{- if and .Values.history.enabled .Values.history.secretName }}{{ $ports = concat $ports $known.postgresql }}{{ end -}}
{{- if .Values.notify.secretName }}{{ $ports = concat $ports (list 25 465 587 443) }}{{ end -}}
{{- range $key := list "history_url" "notify_url" -}}
{{- with dig $key "" $.Values.config -}}
{{- $url := urlParse . -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) -}}
{{- $scheme := first (splitList "+" $url.scheme) -}}
{{- if $port }}{{ $ports = append $ports (int $port) }}{{ else }}{{ $ports = concat $ports (get $known $scheme | default list) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end }}

{{/* The egress rules of a pod that sends requests to the API servers: DNS and their ports. */}}
{{- define "dovetail.egressToApiServers" -}}
- ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
- ports:
    {{- range .Values.networkPolicies.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicies.apiServerCIDRs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end }}

{{/* "true" if dovetail-certificates runs: for a webhook or an attached extender whose certificates do not come from elsewhere. */}}
{{- define "dovetail.certificates" -}}
{{- if or (include "dovetail.webhookCertificates" .) (include "dovetail.extenderCertificates" .) -}}true{{- end -}}
{{- end }}
{{- define "dovetail.webhookCertificates" -}}
{{- if and .Values.webhook.enabled (not .Values.webhook.issuer.name) -}}true{{- end -}}
{{- end }}

{{/* The namespace of what runs on the nodes: agent, MPS and the watchdog of turns. */}}
{{- define "dovetail.agentNamespace" -}}
{{- .Values.agent.namespace | default .Release.Namespace -}}
{{- end }}

{{/* The namespaces of the platform itself: the cluster's own, Dovetail's and those of the values. */}}
{{- define "dovetail.exemptNamespaces" -}}
{{- concat (list "kube-system" .Release.Namespace (include "dovetail.agentNamespace" .)) .Values.policies.exemptNamespaces | uniq | toYaml }}
{{- end }}

{{/* The namespaces in which the policies check pods: all but the cluster's own, Dovetail's and those of the values. */}}
{{- define "dovetail.namespaces" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: {{- include "dovetail.exemptNamespaces" . | nindent 6 }}
{{- end }}

{{/* CEL: every container of a pod, of any kind. */}}
{{- define "dovetail.everyContainer" -}}
(object.spec.containers
+ (has(object.spec.initContainers) ? object.spec.initContainers : [])
+ (has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers : []))
{{- end }}

{{/* CEL: whether container `c` requests Dovetail's resources. */}}
{{- define "dovetail.asksOurs" -}}
(has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(r,
r in ['dovetail.dev/gpu-milli', 'dovetail.dev/gpu-memory-mib', 'dovetail.dev/gpu-turn']))
{{- end }}

{{/* The RuntimeClasses with which a container gets NVIDIA's devices; Dovetail's is always included. */}}
{{- define "dovetail.runtimeClasses" -}}
{{- concat (list "nvidia") .Values.runtimeClass.names | uniq | toJson -}}
{{- end }}

{{/* CEL: whether a pod is on Dovetail's scheduler, one of its runtime classes or its resources. */}}
{{- define "dovetail.isOurs" -}}
(has(object.spec.schedulerName) && object.spec.schedulerName == 'dovetail')
|| (has(object.spec.runtimeClassName) && object.spec.runtimeClassName in {{ include "dovetail.runtimeClasses" . }})
|| {{ include "dovetail.everyContainer" . }}.exists(c, {{ include "dovetail.asksOurs" . }})
{{- end }}

{{/*
CEL: whether a new pod has anything that the policy on pods restricts. All others leave it at this condition. A name that the
policy restricts must be found here too: `tests/chart/test_admission.py` compares them.
*/}}
{{- define "dovetail.mayConcern" -}}
has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('dovetail.dev/') || k.contains('cdi.k8s.io'))
|| has(object.metadata.labels) && object.metadata.labels.exists(k, k.startsWith('dovetail.dev/'))
|| {{ include "dovetail.isOurs" . }}
{{- end }}

{{/* CEL: the containers that this request adds: all of a new pod, the new ephemeral ones of an existing pod. */}}
{{- define "dovetail.newContainers" -}}
oldObject == null ? {{ include "dovetail.everyContainer" . }} :
(has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers : []).filter(c,
!(has(oldObject.spec.ephemeralContainers) && oldObject.spec.ephemeralContainers.exists(o, o.name == c.name)))
{{- end }}

{{/* The configured resources whose plugin may set NVIDIA_VISIBLE_DEVICES: all except those of the other known vendors. */}}
{{- define "dovetail.nvidiaResources" -}}
{{- $found := list -}}
{{- range include "dovetail.vendorResources" . | fromJsonArray -}}
{{- if not (regexMatch "^([^/]+[.])?(amd|intel|huawei)[.]com/" .) -}}
{{- $found = append $found . -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{/* CEL: whether a vendor's plugin determines what container `c` sees: it requests an amount above 0 of the plugin's resource. */}}
{{- define "dovetail.isServed" -}}
has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(r,
(r in {{ include "dovetail.nvidiaResources" . }} || r.startsWith('nvidia.com/mig-'))
&& quantity(c.resources.limits[r]).isGreaterThan(quantity('0')))
{{- end }}

{{/*
The common variables of policies on the shape of pods; the CEL of `if` says of which pods, all by default. NVIDIA's runtime gives
a container the devices that its variable NVIDIA_VISIBLE_DEVICES names, or the mounts below one folder; an image may set `all`.
*/}}
{{- define "dovetail.shapeVariables" -}}
{{- $if := .if -}}
{{- with .root -}}
- name: containers
  expression: >-
    {{ with $if }}!{{ . }} ? [] : {{ end }}{{ include "dovetail.newContainers" . | nindent 4 | trim }}
- name: served
  expression: >-
    variables.containers.filter(c, {{ include "dovetail.isServed" . | nindent 4 | trim }})
# A vendor's device with the amount 0: kube-scheduler and kubelet skip it, so no plugin determines what the container sees.
- name: zero
  expression: >-
    variables.containers.filter(c, has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(r,
    (r.startsWith('nvidia.com/') || r in {{ include "dovetail.vendorResources" . }})
    && !quantity(c.resources.limits[r]).isGreaterThan(quantity('0'))))
# Of two variables of one name, kubelet uses the last; a container's own variable takes precedence over those of envFrom.
- name: open
  expression: >-
    variables.containers.filter(c, !({{ include "dovetail.isServed" . | nindent 4 | trim }})
    && (!has(c.env) || c.env.filter(e, e.name == 'NVIDIA_VISIBLE_DEVICES').size() != 1
    || !c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES' && (has(e.value) && e.value == 'void'
    || has(e.valueFrom) && has(e.valueFrom.fieldRef) && e.valueFrom.fieldRef.fieldPath.matches(
    '^metadata[.]annotations\\[\'dovetail[.]dev/visible-devices[.][0-9]+\'\\]$')))))
# In kubelet, a pod's own variables take precedence over a plugin's. A ConfigMap may change later, so only envFrom's
# prefix counts: with a prefix that no such name starts with, it cannot set the variable.
- name: granting
  expression: >-
    variables.containers.filter(c, has(c.env) && c.env.exists(e, e.name in ['AMD_VISIBLE_DEVICES', 'ASCEND_VISIBLE_DEVICES']))
    + variables.served.filter(c, has(c.env) && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES')
    || has(c.envFrom) && c.envFrom.exists(f, ['NVIDIA_VISIBLE_DEVICES', 'AMD_VISIBLE_DEVICES', 'ASCEND_VISIBLE_DEVICES']
    .exists(n, n.startsWith(has(f.prefix) ? f.prefix : ''))))
# The runtime cleans the path before it reads it, so every spelling of the path contains the folder's name.
- name: mounting
  expression: >-
    variables.containers.filter(c, has(c.volumeMounts) &&
    c.volumeMounts.exists(m, m.mountPath.contains('nvidia-container-devices')))
{{- end }}
{{- end }}

{{/* Of the containers in `dovetail.shapeVariables`. */}}
{{- define "dovetail.shapeValidations" -}}
- expression: "variables.zero.size() == 0"
  messageExpression: >-
    'container ' + variables.zero[0].name + ' asks 0 of a vendor\'s devices (such as nvidia.com/gpu: 0), which gives it none: '
    + 'leave the resource out, or ask 1 or more'
  reason: Forbidden
- expression: "variables.open.size() == 0"
  messageExpression: >-
    'container ' + variables.open[0].name + ' must have NVIDIA_VISIBLE_DEVICES once, as void or from its annotation '
    + 'dovetail.dev/visible-devices.N: a pod with the annotation dovetail.dev/gpu gets it from Dovetail\'s webhook'
  reason: Forbidden
- expression: "variables.granting.size() == 0"
  messageExpression: >-
    'container ' + variables.granting[0].name + ' must not set NVIDIA_VISIBLE_DEVICES, AMD_VISIBLE_DEVICES or '
    + 'ASCEND_VISIBLE_DEVICES, by env or by an envFrom without a prefix of its own: the vendor\'s device plugin says what it sees'
  reason: Forbidden
- expression: "variables.mounting.size() == 0"
  messageExpression: >-
    'container ' + variables.mounting[0].name + ' must not mount anything at nvidia-container-devices: '
    + 'NVIDIA\'s runtime gives a container the devices that are named there'
  reason: Forbidden
# Kubelet admits a pod that was put on a node which does not advertise its resources, and then calls no plugin.
- expression: >-
    oldObject != null || variables.served.size() == 0
    || !has(object.spec.nodeName) || object.spec.nodeName == ''
  messageExpression: >-
    'a pod that asks a vendor\'s devices must leave its node to the scheduler, and this one names the node '
    + object.spec.nodeName + ' (spec.nodeName)'
  reason: Forbidden
{{- end }}

{{/* CEL: the keys of an object's annotations with which a container runtime or its plugins assign CDI devices. */}}
{{- define "dovetail.cdiAnnotations" -}}
({{ . }}.filter(k, k.contains('cdi.k8s.io') && k.split('/')[0].matches('^([^/]+[.])?cdi[.]k8s[.]io$')))
{{- end }}

{{/* CEL: the labels of `now` that claim membership in a GPUJob, without those that `before` already has under the
condition `old`. */}}
{{- define "dovetail.claims" -}}
['dovetail.dev/job', 'dovetail.dev/job-number', 'dovetail.dev/reservation', 'dovetail.dev/array', 'dovetail.dev/task', 'dovetail.dev/placeholder'].filter(k,
k in {{ .now }} && !({{ .old }} && k in {{ .before }} && {{ .before }}[k] == {{ .now }}[k]))
{{- end }}

{{/* CEL: the user that a GPUJob says it is of. Call with the object's name. */}}
{{- define "dovetail.userOf" -}}
has({{ . }}.metadata.annotations) && 'dovetail.dev/user' in {{ . }}.metadata.annotations ?
{{ . }}.metadata.annotations['dovetail.dev/user'] : ''
{{- end }}

{{/* CEL: whether an update changes this field of the metadata, which is `labels` or `annotations`. */}}
{{- define "dovetail.differs" -}}
(has(object.metadata.{{ . }}) ? object.metadata.{{ . }} : {}) != (has(oldObject.metadata.{{ . }}) ? oldObject.metadata.{{ . }} : {})
{{- end }}

{{/* CEL: which of these annotations' keys the extender writes at bind. */}}
{{- define "dovetail.writtenAtBind" -}}
{{ . }}.filter(k, k == 'dovetail.dev/allocation' || k.matches('^dovetail[.]dev/(visible-devices|mps-percentage|mps-memory)[.]'))
{{- end }}

{{/*
How an update replaces what a lease elects. The next pod starts as a standby, and is ready before the active one ends and
gives up its lease: placements pause for a take-over, not for the start of a container.
*/}}
{{- define "dovetail.takeOver" -}}
strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
{{- end }}

{{/* The claim of the history's volume; empty if it has none. */}}
{{- define "dovetail.historyClaim" -}}
{{- if and .Values.history.enabled .Values.history.persistence.enabled (not .Values.history.secretName) -}}
{{- .Values.history.persistence.existingClaim | default "dovetail-history" -}}
{{- end -}}
{{- end }}

{{/* The claim of the volume with the gateway's samples; empty if it has none. Several gateways need a database. */}}
{{- define "dovetail.samplesClaim" -}}
{{- if and .Values.history.persistence.enabled (not .Values.history.secretName) (not .Values.observe.enabled) (eq (int .Values.gateway.replicas) 1) -}}
dovetail-samples
{{- end -}}
{{- end }}

{{/* The kinds whose objects can wait in the queue (dovetail.jobs.guests.registry), and the field that holds them back. */}}
{{- define "dovetail.guests" -}}
- {group: batch, resource: jobs, suspend: spec.suspend}
- {group: jobset.x-k8s.io, resource: jobsets, suspend: spec.suspend}
- {group: ray.io, resource: rayjobs, suspend: spec.suspend}
- {group: ray.io, resource: rayclusters, suspend: spec.suspend}
- {group: kubeflow.org, resource: mpijobs, suspend: spec.runPolicy.suspend}
- {group: trainer.kubeflow.org, resource: trainjobs, suspend: spec.suspend}
{{- end }}

{{/* The kinds whose replicas wait one by one (dovetail.jobs.guests.replicas). */}}
{{- define "dovetail.replicated" -}}
- {group: apps, resource: deployments}
- {group: apps, resource: statefulsets}
- {group: leaderworkerset.x-k8s.io, resource: leaderworkersets}
- {group: disaggregatedset.x-k8s.io, resource: disaggregatedsets}
{{- end }}

{{/* CEL: whether the field that holds a guest back is true. Call with the object's name and the field's path. */}}
{{- define "dovetail.heldBy" -}}
{{- $object := .object -}}
{{- $way := $object -}}
{{- $all := list -}}
{{- range splitList "." .path -}}
{{- $way = printf "%s.%s" $way . -}}
{{- $all = append $all (printf "has(%s)" $way) -}}
{{- end -}}
{{ join " && " $all }} && {{ $way }}
{{- end }}

{{/* Where the gateway and its console are, for NOTES.txt. */}}
{{- define "dovetail.gatewayNotes" -}}
{{- if .Values.gateway.enabled }}

The console and REST:
{{ if .Values.gateway.publicURL }}
  {{ .Values.gateway.publicURL }}
{{- else }}
  kubectl -n {{ .Release.Namespace }} port-forward service/dovetail-gateway {{ .Values.gateway.port }}
  {{ ternary "https" "http" (ne .Values.gateway.tlsSecretName "") }}://127.0.0.1:{{ .Values.gateway.port }}/console/
{{- end }}
{{ if .Values.gateway.oidc.issuer }}
Sign in by {{ .Values.gateway.oidc.issuer }}.
{{- else }}
Sign in with a token, such as that of `kubectl create token ACCOUNT`.
{{- end }}
{{- end }}
{{- end }}

{{/* The host name of the gateway's public URL; empty without one. */}}
{{- define "dovetail.gatewayHost" -}}
{{- with .Values.gateway.publicURL }}{{ (urlParse .).hostname }}{{ end -}}
{{- end }}
