{{/* "true" if dovetail-certificates issues the certificates of an attached extender and of its client. */}}
{{- define "dovetail.extenderCertificates" -}}
{{- if and .Values.attach.enabled (not .Values.attach.issuer.name) (not .Values.attach.secretName) -}}true{{- end -}}
{{- end }}

{{/* The Secret with the certificate of an attached extender. */}}
{{- define "dovetail.extenderSecret" -}}
{{- .Values.attach.secretName | default "dovetail-extender" -}}
{{- end }}

{{/* How to give an outside kube-scheduler its certificate and its configuration; for NOTES. */}}
{{- define "dovetail.attachNotes" -}}
{{- $namespace := .Release.Namespace -}}
The chart runs no kube-scheduler: yours calls the extender over mutual TLS.
{{- if and .Values.attach.secretName (not .Values.attach.issuer.name) }}

1. Give kube-scheduler a certificate of the CA in Secret {{ .Values.attach.secretName }} (key ca.crt), with the name {{ first .Values.attach.clientNames }}:
   tls.crt, tls.key and ca.crt in {{ .Values.attach.clientFolder }}.
{{- else }}

1. Give kube-scheduler the Secret dovetail-extender-client (tls.crt, tls.key, ca.crt) in {{ .Values.attach.clientFolder }}.
   A pod in namespace {{ $namespace }} mounts it, and kubelet delivers each renewal. For a static pod, on each machine of the control plane:

     mkdir -p -m 0700 {{ .Values.attach.clientFolder }}
     for file in tls.crt tls.key ca.crt; do
       kubectl -n {{ $namespace }} get secret dovetail-extender-client -o go-template="{{ "{{" }}index .data \"$file\" | base64decode{{ "}}" }}" > {{ .Values.attach.clientFolder }}/$file
     done

   and mount {{ .Values.attach.clientFolder }} into it (hostPath, readOnly).
   {{- if include "dovetail.extenderCertificates" . }}
   The client's certificate is valid for a year and renewed after eight months: copy it again then. kube-scheduler reads
   the new files by itself.
   {{- end }}
{{- end }}
{{- if not .Values.attach.url }}

   A static pod does not resolve the name of a Service, and has no service account: upgrade with
   scheduler.kubeconfig=/etc/kubernetes/scheduler.conf and attach.url=https://ADDRESS:{{ .Values.attach.port }}, the address of

     kubectl -n {{ $namespace }} get service dovetail-extender -o jsonpath='{.spec.clusterIP}'
{{- end }}

2. Start kube-scheduler with this configuration (--config), or add its profile dovetail and its extenders to yours. It is also
   in the ConfigMap dovetail-scheduler, key scheduler.yaml:

# --- KubeSchedulerConfiguration: begin ---
{{ include "dovetail.schedulerConfig" . }}
# --- KubeSchedulerConfiguration: end ---
{{- end }}
