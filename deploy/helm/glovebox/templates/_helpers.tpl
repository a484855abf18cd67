{{- define "glovebox.name" -}}
{{- if contains "glovebox" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-glovebox" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "glovebox.selector" -}}
app.kubernetes.io/name: glovebox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "glovebox.labels" -}}
{{ include "glovebox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "glovebox.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "glovebox.sandboxes" -}}
{{ .Values.sandboxes.namespace | default (printf "%s-sandboxes" .Release.Namespace) }}
{{- end -}}

{{- /* Values that are kept from an older chart have none. */ -}}
{{- define "glovebox.transport" -}}
{{ .Values.sandboxes.transport | default "exec" }}
{{- end -}}

{{- define "glovebox.tokenSecret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "glovebox.name" .)) }}
{{- end -}}

{{- define "glovebox.publicURL" -}}
{{ .Values.publicURL | default (printf "http://%s.%s.svc:%v" (include "glovebox.name" .) .Release.Namespace .Values.service.port) }}
{{- end -}}

{{- /* What every container of the release is confined by. */ -}}
{{- define "glovebox.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "glovebox.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}
