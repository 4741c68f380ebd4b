{{/* The vendors whose agents run, as JSON. */}}
{{- define "dovetail.agentVendors" -}}
{{- $found := list -}}
{{- if not .Values.simulation.enabled -}}
{{- range $name, $vendor := .Values.agent.vendors }}{{ if $vendor.enabled }}{{ $found = append $found $name }}{{ end }}{{ end -}}
{{- end -}}
{{- $found | sortAlpha | toJson -}}
{{- end }}

{{/* The container of one vendor's agent. Call with root, name and vendor (its values). */}}
{{- define "dovetail.vendorAgent" -}}
{{- $agent := .root.Values.agent -}}
- name: agent
  image: {{ include "dovetail.image" (dict "root" .root "name" "agent") }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [dovetail-agent]
  args:
    - --config=/etc/dovetail/gpu_config.yaml
    - --provider={{ ternary "nvml" .name (eq .name "nvidia") }}
    {{- include "dovetail.metricsOptions" (dict "root" .root "port" $agent.metricsPort) | nindent 4 }}
    - --node=$(NODE_NAME)
    {{- if $agent.podResources.enabled }}
    - --pod-resources=/kubelet/pod-resources/kubelet.sock
    {{- end }}
  env:
    - name: NODE_NAME
      valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
    {{- if eq .name "nvidia" }}
    # All devices, and the driver's management library.
    - {name: NVIDIA_VISIBLE_DEVICES, value: all}
    - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
    {{- else }}
    # On a node with NVIDIA's runtime too, none of its devices.
    - {name: NVIDIA_VISIBLE_DEVICES, value: void}
    {{- with .vendor.libraryPath }}
    - {name: LD_LIBRARY_PATH, value: {{ join ":" . | quote }}}
    {{- end }}
    {{- with .vendor.pythonPath }}
    - {name: PYTHONPATH, value: {{ . | quote }}}
    {{- end }}
    {{- end }}
  ports:
    - {name: metrics, containerPort: {{ $agent.metricsPort }}}
  {{- include "dovetail.probes" (dict "root" .root "port" "metrics") | nindent 2 }}
  resources:
    requests: {{- toYaml $agent.resources.requests | nindent 6 }}
    limits: {{- toYaml (merge (dict) $agent.resources.limits (empty .vendor.monitoringResource | ternary (dict) (dict (default "" .vendor.monitoringResource) 1))) | nindent 6 }}
  securityContext:
    readOnlyRootFilesystem: true
    {{- if .vendor.privileged }}
    privileged: true
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 0
    {{- else }}
    allowPrivilegeEscalation: false
    {{- if $agent.podResources.enabled }}
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 0
    {{- else }}
    runAsNonRoot: true
    {{- end }}
    capabilities: {drop: [ALL]}
    {{- end }}
  volumeMounts:
    {{- include "dovetail.configMount" .root | nindent 4 }}
    {{- if $agent.podResources.enabled }}
    - {name: pod-resources, mountPath: /kubelet/pod-resources, readOnly: true}
    {{- end }}
    {{- range $at, $folder := .vendor.libraries }}
    - {name: library-{{ $at }}, mountPath: {{ $folder }}, readOnly: true}
    {{- end }}
{{- end }}
