{{- define "cuscuta.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- /* Labels of a part: (dict "root" $ "part" "entry"). */}}
{{- define "cuscuta.selector" -}}
app.kubernetes.io/name: cuscuta
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "cuscuta.labels" -}}
{{ include "cuscuta.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "cuscuta.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* How long a worker's pod is given: its own drain, and 10 s for connections and the last spans. */}}
{{- define "cuscuta.workerGrace" -}}
{{ add (int .Values.worker.haltGraceSeconds) 10 }}
{{- end }}

{{- define "cuscuta.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "cuscuta.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "cuscuta.env" -}}
{{- $root := .root -}}
- {name: CUSCUTA_NAME, value: {{ $root.Values.name | quote }}}
- {name: CUSCUTA_NATS_URL, value: {{ $root.Values.nats.url | quote }}}
- {name: CUSCUTA_REPLICAS, value: {{ $root.Values.nats.replicas | quote }}}
- {name: CUSCUTA_LOG_FORMAT, value: json}
{{- if $root.Values.nats.caSecret }}
- {name: CUSCUTA_NATS_CA, value: /etc/cuscuta/nats-ca/ca.crt}
{{- end }}
{{- if $root.Values.nats.credsSecret }}
- {name: CUSCUTA_NATS_CREDS, value: /etc/cuscuta/nats-creds/{{ .part }}.creds}
{{- end }}
{{- range $key, $value := $root.Values.settings }}
- {name: {{ $key }}, value: {{ $value | quote }}}
{{- end }}
{{- range $key, $value := $root.Values.otel }}
- {name: {{ $key }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "cuscuta.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.nats.caSecret }}
- {name: nats-ca, mountPath: /etc/cuscuta/nats-ca, readOnly: true}
{{- end }}
{{- if .root.Values.nats.credsSecret }}
- {name: nats-creds, mountPath: /etc/cuscuta/nats-creds, readOnly: true}
{{- end }}
{{- end }}

{{- define "cuscuta.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- if .root.Values.nats.caSecret }}
- name: nats-ca
  secret: {secretName: {{ .root.Values.nats.caSecret }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- if .root.Values.nats.credsSecret }}
- name: nats-creds
  secret: {secretName: {{ .root.Values.nats.credsSecret }}, items: [{key: {{ .part }}.creds, path: {{ .part }}.creds}]}
{{- end }}
{{- end }}

{{- define "cuscuta.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:  # without PostgreSQL jobs go on, so entry stays within reach; all of its replicas would go at once
  httpGet: {path: {{ if eq .part "entry" }}"/readyz?exclude=postgres"{{ else }}/readyz{{ end }}, port: http}
  periodSeconds: 3
  timeoutSeconds: 5
{{- end }}

{{- /* What the pods of a part have in common: (dict "root" $ "part" "entry"). */}}
{{- define "cuscuta.pod" -}}
serviceAccountName: {{ include "cuscuta.name" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "cuscuta.podSecurity" . | nindent 2 }}
{{- include "cuscuta.where" . }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cuscuta.selector" . | nindent 8 }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cuscuta.selector" . | nindent 8 }}
{{- end }}

{{- /* Where every pod of ours may run, and what its image is fetched with. */}}
{{- define "cuscuta.where" }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
