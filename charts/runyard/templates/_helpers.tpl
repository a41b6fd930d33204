{{- define "runyard.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "runyard.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "runyard.name" .) .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "runyard.name" .) | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "runyard.selector" -}}
app.kubernetes.io/name: {{ include "runyard.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "runyard.labels" -}}
{{ include "runyard.selector" . }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The annotations of an object: those of all, and `more`. Nothing without any. */}}
{{- define "runyard.annotations" -}}
{{- with merge (dict) (.more | default dict) .root.Values.additionalAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{- define "runyard.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "runyard.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "runyard.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "runyard.setupAccount" -}}
{{ .Values.setup.serviceAccount.name | default (printf "%s-setup" (include "runyard.fullname" .)) }}
{{- end }}

{{/* The name of the scrape's job: with the namespace, which yard a series is of. */}}
{{- define "runyard.job" -}}
{{ .Values.metrics.job | default (include "runyard.fullname" .) }}
{{- end }}

{{- define "runyard.listen" -}}
{{ (.Values.config.admin | default dict).listen | default "0.0.0.0:8080" }}
{{- end }}

{{- define "runyard.port" -}}
{{ include "runyard.listen" . | splitList ":" | last }}
{{- end }}

{{/* The operator's file: the values of `config`, with the credential's place where the chart mounts it. YAML's numbers
are floats here: whole ones are written as such, or 1000000 would be 1e+06. */}}
{{- define "runyard.toml" -}}
{{- $config := deepCopy .Values.config -}}
{{- $github := $config.github | default dict -}}
{{- if and .Values.github.existingSecret (ne ($github.kind | default "real") "none") -}}
{{- if $github.app_id -}}
{{- if not (kindIs "string" $github.app_id) -}}
{{- $_ := set $github "app_id" ($github.app_id | int64 | toString) -}}
{{- end -}}
{{- $_ := set $github "app_key_file" (printf "/etc/runyard/github/%s" .Values.github.appPrivateKeyKey) -}}
{{- else -}}
{{- $_ := set $github "token_file" (printf "/etc/runyard/github/%s" .Values.github.tokenKey) -}}
{{- end -}}
{{- $_ := set $config "github" $github -}}
{{- end -}}
{{- if .Values.statements.existingSecret -}}
{{- $history := $config.history | default dict -}}
{{- $_ := set $history "signing_key_file" (printf "/etc/runyard/statements/%s" .Values.statements.privateKeyKey) -}}
{{- $_ := set $config "history" $history -}}
{{- end -}}
{{- range $key, $value := $config }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- range $section, $keys := $config }}
{{- if and (kindIs "map" $keys) $keys }}

[{{ $section }}]
{{- range $key, $value := $keys }}
{{ $key }} = {{ if kindIs "map" $value }}{{ $value | toJson | quote }}{{ else if and (kindIs "float64" $value) (eq $value (floor $value)) }}{{ $value | int64 }}{{ else }}{{ $value | toJson }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "runyard.aws" -}}
{{- with .Values.aws.region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .Values.aws.endpointUrl }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "runyard.podSecurity" -}}
{{- $user := int64 .Values.runAsUser -}}
{{- $ours := dict "runAsNonRoot" true "runAsUser" $user "runAsGroup" $user "fsGroup" $user "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{ mergeOverwrite $ours .Values.podSecurityContext | toYaml }}
{{- end }}

{{- define "runyard.containerSecurity" -}}
{{- $ours := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{ mergeOverwrite $ours .Values.securityContext | toYaml }}
{{- end }}

{{- define "runyard.dns" -}}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Checks a value against its node of checks.json, where Helm's schema would say a pattern or leave out which keys there
are. `at` is the value's path. */}}
{{- define "runyard.check" -}}
{{- $at := .at -}}
{{- $node := .node -}}
{{- $properties := $node.properties | default dict -}}
{{- if kindIs "map" .value -}}
{{- $closed := and (hasKey $node "additionalProperties") (not (kindIs "map" $node.additionalProperties)) -}}
{{- range $key, $value := .value -}}
{{- $path := ternary $key (printf "%s.%s" $at $key) (eq $at "") -}}
{{- if and $closed (not (hasKey $properties $key)) -}}
{{- fail (printf "%s: there is no such key; the keys%s are %s" $path (ternary "" (printf " of %s" $at) (eq $at "")) (keys $properties | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if hasKey $properties $key -}}
{{- include "runyard.check" (dict "at" $path "node" (get $properties $key) "value" $value) -}}
{{- end -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $i, $value := .value -}}
{{- include "runyard.check" (dict "at" (printf "%s[%d]" $at $i) "node" ($node.items | default dict) "value" $value) -}}
{{- end -}}
{{- else if and $node.right (not (kindIs "invalid" .value)) -}}
{{- $number := and (kindIs "slice" $node.type) (not (kindIs "string" .value)) -}}
{{- if not $number -}}
{{- if not (and (kindIs "string" .value) (regexMatch $node.pattern (toString .value))) -}}
{{- fail (printf "%s: %s is invalid; %s" $at (toJson .value) $node.right) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Where the operator and the setup Jobs find the operator's file. */}}
{{- define "runyard.file" -}}
/etc/runyard/config/runyard.toml
{{- end }}

{{/* What every pod of the chart that ends has: a verb of the command line on the table, with the operator's way to the
outside (a proxy, its certificates) and, for the setup Jobs, its file. */}}
{{- define "runyard.verb" -}}
{{- $values := .root.Values -}}
{{- $given := dict -}}
{{- range $values.extraEnv }}{{ $_ := set $given .name true }}{{ end -}}
restartPolicy: Never
automountServiceAccountToken: {{ $values.serviceAccount.automountToken }}
enableServiceLinks: false
{{- include "runyard.dns" .root }}
securityContext:
  {{- include "runyard.podSecurity" .root | nindent 2 }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: runyard
    image: {{ include "runyard.image" .root | quote }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{ .args | toJson }}
    env:
      - name: RUNYARD_TABLE
        value: {{ $values.config.table | default "runyard" | quote }}
      {{- if not $given.RUNYARD_QUEUE__KIND }}
      - name: RUNYARD_QUEUE__KIND
        value: {{ ($values.config.queue | default dict).kind | default "sqs" | quote }}
      {{- end }}
      {{- if not $given.USER }}
      - name: USER
        value: helm
      {{- end }}
      {{- include "runyard.aws" .root | nindent 6 }}
      {{- with $values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with $values.extraEnvFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "runyard.containerSecurity" .root | nindent 6 }}
    {{- /* A verb that compares everything holds the whole table for a moment. */}}
    resources:
      requests: {cpu: 50m, memory: 256Mi}
      limits: {memory: 256Mi}
    {{- if or .config $values.extraVolumeMounts }}
    volumeMounts:
      {{- if .config }}
      - name: config
        mountPath: {{ include "runyard.file" .root | dir }}
        readOnly: true
      {{- end }}
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
{{- if or .config $values.extraVolumes }}
volumes:
  {{- with .config }}
  - name: config
    configMap:
      name: {{ . }}
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
