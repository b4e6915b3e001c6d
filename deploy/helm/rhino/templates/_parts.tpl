{{- define "rhino.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "rhino.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "rhino.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- /* Probes at the port for health. A start may have to read a large store. */}}
{{- define "rhino.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: health }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 360
livenessProbe:
  httpGet: { path: /healthz, port: health }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: health }
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* More settings as variables. Takes the prefix and the map. */}}
{{- define "rhino.settings" -}}
{{- range $name, $value := .settings }}
- { name: {{ $.prefix }}{{ $name | upper }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end }}

{{- /* The variable and the volume of a daemon's identity. Takes the context and the source of its certificate. */}}
{{- define "rhino.identityEnv" -}}
{{- if .certificate }}- { name: RHINO_TLS_DIR, value: /etc/rhino }
{{- else }}- { name: RHINO_CLUSTER_KEY, value: /etc/rhino/cluster.key }
{{- end }}
{{- end }}

{{- define "rhino.identityVolume" -}}
- name: key
{{- if .certificate }}
{{ toYaml .certificate | indent 2 }}
{{- else }}
  secret: { secretName: {{ required "clusterKeySecret, or certificates.manager and certificates.sidecar" .context.Values.clusterKeySecret }}, defaultMode: 0400 }
{{- end }}
{{- end }}

{{- define "rhino.serviceAccount" -}}
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- end }}

{{- /* Variables with the credentials for the archive. */}}
{{- define "rhino.archiveCredentials" -}}
{{- with .Values.archive.credentialsSecret }}
envFrom:
  - secretRef: { name: {{ . }} }
{{- end }}
{{- end }}
